"""Google Cloud Secret Manager."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from windlass.secrets.provider import BadCredential, IdentityValues, Provider
from windlass.secrets.providers.google.methods import METHODS, PROJECT, TITLE

if TYPE_CHECKING:
    from windlass.secrets.provider import Manager, Subject

NAME = re.compile(rf"[A-Za-z0-9_-]{{1,255}}|projects/(?:{PROJECT})/secrets/[A-Za-z0-9_-]{{1,255}}")


class Google(Provider):
    name = "google"
    title = TITLE
    extra = "google"
    methods = METHODS

    def connect(self, configuration: Any, subject: Subject) -> Manager:
        from windlass.secrets.providers.google.manager import GoogleManager  # noqa: PLC0415 - imports the client

        return GoogleManager(configuration, subject, self._endpoints)

    def check_name(self, name: str) -> None:
        if not NAME.fullmatch(name):
            raise BadCredential(
                f"{name[:200]!r} is no name of a secret of Google Cloud.",
                "A name has letters, digits, _ and -, at most 255 of them. For a secret of another project give "
                "projects/PROJECT/secrets/NAME.",
            )

    def identity_values(self, issuer: str, subject: str) -> IdentityValues:
        provider = "projects/PROJECT_NUMBER/locations/global/workloadIdentityPools/windlass/providers/windlass"
        principal = f"principal://iam.googleapis.com/{provider.partition('/providers/')[0]}/subject/{subject}"
        audience = f"//iam.googleapis.com/{provider}"
        return IdentityValues(
            audience,
            {
                "Issuer URL": issuer,
                "Allowed audience": f"https:{audience} (the default audience)",
                "Attribute mapping": "google.subject = assertion.sub",
                "Attribute condition": f"assertion.sub == '{subject}'",
                "Principal": principal,
            },
            "gcloud iam workload-identity-pools create windlass --location=global\n"
            "gcloud iam workload-identity-pools providers create-oidc windlass --location=global \\\n"
            f"  --workload-identity-pool=windlass --issuer-uri={issuer} \\\n"
            "  --attribute-mapping=google.subject=assertion.sub \\\n"
            f"  --attribute-condition=\"assertion.sub == '{subject}'\"\n"
            "gcloud secrets add-iam-policy-binding SECRET --role=roles/secretmanager.secretAccessor \\\n"
            f"  --member='{principal}'",
        )
