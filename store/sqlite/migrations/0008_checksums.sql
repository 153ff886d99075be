-- The checksum of an event's row, over all of its columns; rows written before have
-- none.
ALTER TABLE events ADD COLUMN sum INTEGER;

-- Why a session's log cannot be read; empty if it can, as far as anybody knows.
ALTER TABLE sessions ADD COLUMN damage TEXT NOT NULL DEFAULT '';
