"""Errors of the tenants' room."""

from app.errors import Invalid, NotFound


class WorkNotFound(NotFound):
    """No such Work."""

    code = "work_not_found"


class OrganizationNotFound(NotFound):
    """No such organization."""

    code = "organization_not_found"


class UserNotFound(NotFound):
    """No such user in this organization."""

    code = "user_not_found"


class ApiKeyNotFound(NotFound):
    """No such API key."""

    code = "api_key_not_found"


class NoDefaultWork(Invalid):
    """This organization has no Work yet; create one or name one by `work_id`."""

    code = "no_default_work"
