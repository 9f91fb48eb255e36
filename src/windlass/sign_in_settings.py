"""The settings of signing in to the dashboard with OpenID Connect: a part of `windlass.config.Settings`."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings

from windlass.setting_types import Address, Names


class SignInSettings(BaseSettings):
    sign_in_issuer: Address = Field(
        None,
        description="Address of the OpenID Connect provider with which people sign in to the dashboard "
        "(docs/how-to/sign-in.md), such as `https://login.example.com/realms/staff`.",
    )
    sign_in_client_id: str | None = Field(None, description="The id of this server as a client of that provider.")
    sign_in_client_secret: SecretStr | None = Field(
        None, description="The secret of that client. Removed from the environment once read."
    )
    sign_in_claim: str = Field(
        "email",
        description="The claim with the user's name. The provider must have verified it: `email` is refused without "
        "`email_verified`.",
    )
    sign_in_roles: Names = Field(
        default_factory=list,
        description="Roles of the groups in the claim `groups`, such as `staff=viewer,platform=owner`; the highest one "
        "counts, and is set at each sign-in. Without it, roles are set by owners.",
    )
    sign_in_groups_claim: str = Field("groups", description="The claim with the groups of the user.")
    sign_in_default_role: Literal["viewer", "developer", "owner"] | None = Field(
        None,
        description="Role of a person who signs in for the first time and has none by `WINDLASS_SIGN_IN_ROLES`; "
        "without it, only users whom an owner has added may sign in.",
    )

    sign_in_token_days: float = Field(
        90.0,
        gt=0,
        le=3650,
        description="Days until a token of a person who signs in with that provider expires, unless another time is "
        "given.",
    )
    sign_in_token_max_days: float = Field(
        365.0, gt=0, le=3650, description="The longest time, in days, for which a token of such a person is valid."
    )
    sign_in_within_days: float = Field(
        30.0,
        gt=0,
        le=3650,
        description="Days after a sign-in with that provider for which tokens and sessions of the person count. The "
        "tokens count again after the next sign-in.",
    )

    @model_validator(mode="after")
    def _sign_in_is_complete(self) -> Self:
        given = [self.sign_in_issuer, self.sign_in_client_id, self.sign_in_client_secret]
        if any(given) and not all(given):
            raise ValueError(
                "WINDLASS_SIGN_IN_ISSUER, WINDLASS_SIGN_IN_CLIENT_ID and WINDLASS_SIGN_IN_CLIENT_SECRET belong together"
            )
        return self
