-- Members of deployments.

-- Whether a person sees a deployment. NULL: an owner of the server, who sees all.
CREATE OR REPLACE FUNCTION is_visible(deployment deployments, person uuid) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT person IS NULL OR NOT deployment.members_only
           OR EXISTS (SELECT FROM members WHERE deployment_id = deployment.id AND user_id = person);
$$;
