-- See docs/decisions/queue.md#a-side-job-counts-kickoffs-for-statistics
-- See docs/decisions/queue.md#times-are-counted-in-buckets

-- Buckets of durations, for percentiles. Bucket n has the durations from 1.1^n ms to 1.1^(n + 1) ms, so that its middle is within 5 % of
-- each of them. Bucket 0 also has all shorter durations. DURATION_OF in store/statistics.py is the inverse.
CREATE OR REPLACE FUNCTION duration_bucket(duration interval) RETURNS smallint LANGUAGE sql IMMUTABLE AS $$
    SELECT floor(ln(greatest(1, extract(epoch FROM duration)::float8 * 1000)) / ln(1.1::float8))::smallint;
$$;

-- The smallest UUIDv7 of a time.
CREATE OR REPLACE FUNCTION first_id(at timestamptz) RETURNS uuid LANGUAGE sql STABLE AS $$
    SELECT (lpad(to_hex(floor(greatest(0, extract(epoch FROM at)) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid;
$$;
