package dormouse

// Difference is what differs between two snapshots.
type Difference struct {
	// Added, Changed and Removed count the names.
	Added   int `json:"added"`
	Changed int `json:"changed"`
	Removed int `json:"removed"`
	// Changes are the first of them, in the order of a walk, and Omitted counts the
	// rest.
	Changes []Change `json:"changes"`
	Omitted int      `json:"omitted,omitempty"`
}

// Change is one name that is not what it was.
type Change struct {
	Path string `json:"path"`
	// What became of it: added, changed or removed.
	What string `json:"what"`
	// Kind is what it is, or was if it is no more.
	Kind string `json:"kind"`
	// Was and Size are how large it was, and is.
	Was  int64 `json:"was"`
	Size int64 `json:"size"`
}
