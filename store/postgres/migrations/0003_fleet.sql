-- The servers that share this database. An incarnation is never given twice.
-- Whether a lease has run out is for this database's clock to say.
CREATE TABLE servers (
    incarnation bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text        NOT NULL,
    addr        text        NOT NULL,
    place       text        NOT NULL,
    lease_until timestamptz NOT NULL
) WITH (fillfactor = 10);

-- The secret that servers know each other by.
CREATE TABLE keys (
    one integer PRIMARY KEY CHECK (one = 1),
    key bytea   NOT NULL
);
