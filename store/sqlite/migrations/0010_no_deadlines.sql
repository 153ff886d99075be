-- opens from: 10

-- The deadlines of a session were stored here and nothing read them: the earliest is
-- in the session's row, as due, and all of them follow from the log. Programs that do not
-- know this step write the table with every append, and refuse the database instead.
DROP TABLE deadlines;
