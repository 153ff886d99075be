package runner

// How the files of a tree are opened. Windows has no such flags: what a link leads to
// stays below the root of the tree, and there are no pipes among files.
const (
	openDirectory = 0
	openNoFollow  = 0
	openNonblock  = 0
)
