-- What is configured: agents, environments and the like. A name is unique among
-- those that have one.
CREATE TABLE documents (
    tenant   TEXT    NOT NULL,
    kind     TEXT    NOT NULL,
    id       TEXT    NOT NULL,
    name     TEXT    NOT NULL,
    version  INTEGER NOT NULL CHECK (version > 0),
    revision INTEGER NOT NULL CHECK (revision > 0), -- fences whoever replaces it
    created  INTEGER NOT NULL,
    updated  INTEGER NOT NULL,
    archived INTEGER,          -- NULL: it was not put away
    body     BLOB    NOT NULL, -- JSON
    UNIQUE (tenant, kind, id)
) STRICT;

CREATE UNIQUE INDEX documents_by_name ON documents (tenant, kind, name) WHERE name <> '';
CREATE INDEX documents_by_age ON documents (tenant, kind, created, id);

-- The versions before, of those that keep them, and those that arrive before
-- their document.
CREATE TABLE document_versions (
    tenant   TEXT    NOT NULL,
    kind     TEXT    NOT NULL,
    id       TEXT    NOT NULL,
    name     TEXT    NOT NULL,
    version  INTEGER NOT NULL CHECK (version > 0),
    revision INTEGER NOT NULL,
    created  INTEGER NOT NULL,
    updated  INTEGER NOT NULL,
    archived INTEGER,
    body     BLOB    NOT NULL,
    UNIQUE (tenant, kind, id, version)
) STRICT;
