package catalog

import (
	"maps"
	"slices"

	"github.com/dormouse-run/dormouse/internal/closedjson"
)

// What metadata may hold.
const (
	maxPairs = 16
	maxKey   = 64
	maxValue = 512
)

// MetadataPatch changes metadata key by key: a string sets a key, null removes it.
type MetadataPatch = map[string]closedjson.Optional[string]

func checkMetadata(m map[string]string) error {
	if len(m) > maxPairs {
		return invalidf("metadata", "has %d pairs; at most %d are taken", len(m), maxPairs)
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if err := checkLength("metadata: the key "+short(k), k, 1, maxKey); err != nil {
			return err
		}
		if err := checkLength("metadata."+short(k), m[k], 0, maxValue); err != nil {
			return err
		}
	}
	return nil
}

// CheckMetadata refuses metadata that is over a limit.
func CheckMetadata(m map[string]string) (map[string]string, error) { return m, checkMetadata(m) }

// PatchMetadata returns metadata as a patch leaves it. With emptyRemoves an empty
// value removes its key, as null does.
func PatchMetadata(was map[string]string, patch MetadataPatch, emptyRemoves bool) (map[string]string, error) {
	m := maps.Clone(was)
	if m == nil {
		m = make(map[string]string)
	}
	for k, v := range patch {
		if v.Null || emptyRemoves && v.Value == "" {
			delete(m, k)
		} else {
			m[k] = v.Value
		}
	}
	return m, checkMetadata(m)
}
