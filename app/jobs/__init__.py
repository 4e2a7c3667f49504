"""Jobs: the durable queue, a library's, seen from our side. What a job does is not known here."""
