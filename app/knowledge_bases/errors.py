"""Errors of the knowledge bases."""

from app.errors import NotFound


class KnowledgeBaseNotFound(NotFound):
    """No such knowledge base."""

    code = "knowledge_base_not_found"


class TeamNotFound(NotFound):
    """No such team."""

    code = "team_not_found"


class UserNotAllowed(NotFound):
    """No such user to own this knowledge base: a personal one belongs to whoever creates it."""

    code = "user_not_found"
