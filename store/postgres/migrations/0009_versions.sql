-- opens from: 9

-- How many steps a program must know to use a database that has had this step. The
-- steps so far were refused by every program that did not know them.
ALTER TABLE schema_steps ADD COLUMN least integer NOT NULL DEFAULT 0;
UPDATE schema_steps SET least = version;

-- The least version of the log that a program must know to fold a session's: what is
-- there so far every program can.
ALTER TABLE sessions ADD COLUMN needs integer NOT NULL DEFAULT 1;
