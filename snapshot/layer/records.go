//go:build linux

package layer

import (
	"archive/tar"
	"encoding/binary"
	"errors"
	"strconv"
	"strings"
)

// extentsOf returns the size of a file, and the extents of it that are in the tar.
func extentsOf(h *tar.Header) (size int64, extents []int64, err error) {
	text, ok := h.PAXRecords[recordSize]
	if !ok {
		return h.Size, []int64{0, h.Size}, nil
	}
	wrong := errors.New("its extents make no file")
	if size, err = strconv.ParseInt(text, 10, 64); err != nil || size < 0 {
		return 0, nil, wrong
	}
	end, sum := int64(0), int64(0)
	for word := range strings.SplitSeq(h.PAXRecords[recordExtents], ",") {
		if word == "" && h.PAXRecords[recordExtents] == "" {
			break
		}
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil || n < 0 || len(extents) >= maxExtents {
			return 0, nil, wrong
		}
		if len(extents)%2 == 0 {
			if n < end {
				return 0, nil, wrong
			}
		} else {
			at := extents[len(extents)-1]
			if n > size-at {
				return 0, nil, wrong
			}
			end, sum = at+n, sum+n
		}
		extents = append(extents, n)
	}
	if len(extents)%2 != 0 || sum != h.Size {
		return 0, nil, wrong
	}
	return size, extents, nil
}

// xattrsOf reads the extended attributes in the user namespace, and no others.
func xattrsOf(h *tar.Header) (all []xattr, err error) {
	add := func(name, value string) {
		rest, ok := strings.CutPrefix(name, userXattr)
		switch {
		case !ok:
		case len(all) == maxXattrs || len(value) > maxXattrLen || rest == "" || len(name) > maxXattrName || strings.ContainsRune(rest, 0):
			err = errors.New("its extended attributes are too large")
		default:
			all = append(all, xattr{name, value})
		}
	}
	for key, value := range h.PAXRecords {
		if name, ok := strings.CutPrefix(key, recordXattr); ok {
			add(name, value)
		}
	}
	for rest := h.PAXRecords[recordXattrs]; rest != ""; {
		var pair [2]string
		for i := range pair {
			n, size := binary.Uvarint([]byte(rest[:min(len(rest), binary.MaxVarintLen64)]))
			if size <= 0 || n > uint64(len(rest)-size) { //nolint:gosec // size is no more than there is
				return nil, errors.New("its extended attributes are cut off")
			}
			pair[i], rest = rest[size:size+int(n)], rest[size+int(n):] //nolint:gosec // no longer than the rest
		}
		if add(pair[0], pair[1]); err != nil {
			break
		}
	}
	return all, err
}
