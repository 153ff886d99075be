package dormouse

// Layer is one step of a workspace line: what to put over the steps before it.
type Layer struct {
	// Digest names the blob that holds it, packed.
	Digest Digest `json:"digest"`
	// DiffID is the digest of the tar that is packed in the blob.
	DiffID Digest `json:"diff_id"`
	// Size is how large the blob is.
	Size int64 `json:"size"`
	// Bytes and Entries are of the files in it.
	Bytes   int64 `json:"bytes"`
	Entries int   `json:"entries"`
}
