//go:build linux

package layer

// Diff returns the layer that turns a directory as it was before into what it is now:
// changed entries, and whiteouts for those that were removed. The directories above them
// are included, since a layer has the metadata of each directory in it.
//
// The directory may itself lie over other layers. That matters only for opaque
// directories: one that has become opaque is included with everything in it.
func Diff(before, now Index) Index {
	d := differ{}
	b := 0
	for _, e := range now {
		for ; b < len(before) && compare(before[b].Path, e.Path) < 0; b++ {
			d.removed(before[b])
		}
		var was Entry
		if b < len(before) && before[b].Path == e.Path {
			was = before[b]
			b++
		}
		d.present(was, e)
	}
	for ; b < len(before); b++ {
		d.removed(before[b])
	}
	return d.out
}

// differ walks two indexes side by side.
type differ struct {
	out   Index
	above []ancestor // the directories that the walk is in
}

type ancestor struct {
	Entry
	put   bool // it is in the diff
	whole bool // and so is everything in it
}

// enter drops the directories that a path is not in.
func (d *differ) enter(path string) {
	in := parent(path)
	for n := len(d.above); n > 0; n-- {
		if at := d.above[n-1].Path; at == "." || at == in || len(in) > len(at) && in[:len(at)] == at && in[len(at)] == '/' {
			return
		}
		d.above = d.above[:n-1]
	}
}

// present handles an entry that exists now. Was is its former version.
func (d *differ) present(was, e Entry) {
	if e.Path != "." {
		d.enter(e.Path)
	}
	whole := len(d.above) > 0 && d.above[len(d.above)-1].whole
	changed := whole || !e.unchanged(was)
	if e.Kind == Dir {
		fresh := e.Opaque && (was.Kind != Dir || !was.Opaque)
		e.Opaque = e.Opaque && (fresh || whole)
		d.above = append(d.above, ancestor{Entry: e, whole: whole || fresh})
		if changed || e.Path == "." { // every layer says what its root is like
			d.putParents()
		}
		return
	}
	if changed {
		d.putParents()
		d.out = append(d.out, e)
	}
}

// removed handles an entry that exists no more. It gets a whiteout, unless its directory
// was removed too or is included as opaque.
func (d *differ) removed(was Entry) {
	if was.Path == "." {
		return
	}
	d.enter(was.Path)
	if n := len(d.above); n == 0 || d.above[n-1].Path != parent(was.Path) || d.above[n-1].whole {
		return
	}
	d.putParents()
	d.out = append(d.out, Entry{Path: was.Path, Kind: Whiteout})
}

// putParents adds the directories that the walk is in.
func (d *differ) putParents() {
	for i := range d.above {
		if a := &d.above[i]; !a.put {
			a.put = true
			d.out = append(d.out, a.Entry)
		}
	}
}
