package law

import "github.com/dormouse-run/dormouse"

// ShellOf is the name of a thread's shell. That of a branch's first thread may have
// been begun elsewhere.
func (s State) ShellOf(thread dormouse.ThreadID) dormouse.ThreadID {
	if s.Shell != "" && thread == dormouse.PrimaryThread(s.Session) {
		return s.Shell
	}
	return thread
}
