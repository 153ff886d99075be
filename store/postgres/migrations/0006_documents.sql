-- What is configured: agents, environments and the like. A name is unique among
-- those that have one. Names are compared by their bytes, and bodies are kept as
-- they are.
CREATE TABLE documents (
    tenant   text        COLLATE "C" NOT NULL,
    kind     text        COLLATE "C" NOT NULL,
    id       text        COLLATE "C" NOT NULL,
    name     text        COLLATE "C" NOT NULL,
    version  bigint      NOT NULL CHECK (version > 0),
    revision bigint      NOT NULL CHECK (revision > 0), -- fences whoever replaces it
    created  timestamptz NOT NULL,
    updated  timestamptz NOT NULL,
    archived timestamptz,          -- NULL: it was not put away
    body     bytea       NOT NULL, -- JSON
    PRIMARY KEY (tenant, kind, id)
);

CREATE UNIQUE INDEX documents_by_name ON documents (tenant, kind, name) WHERE name <> '';
CREATE INDEX documents_by_age ON documents (tenant, kind, created, id);

-- The versions before, of those that keep them, and those that arrive before
-- their document.
CREATE TABLE document_versions (
    tenant   text        COLLATE "C" NOT NULL,
    kind     text        COLLATE "C" NOT NULL,
    id       text        COLLATE "C" NOT NULL,
    name     text        COLLATE "C" NOT NULL,
    version  bigint      NOT NULL CHECK (version > 0),
    revision bigint      NOT NULL,
    created  timestamptz NOT NULL,
    updated  timestamptz NOT NULL,
    archived timestamptz,
    body     bytea       NOT NULL,
    PRIMARY KEY (tenant, kind, id, version)
);
