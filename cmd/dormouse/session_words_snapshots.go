package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse"
)

// workspaceInWords is inWords for the events of a workspace and its snapshots.
func workspaceInWords(e dormouse.Event) (string, error) {
	var f struct {
		Snapshot  dormouse.SnapshotID   `json:"snapshot"`
		Snapshots []dormouse.SnapshotID `json:"snapshots"`
		Label     string                `json:"label"`
		Reason    string                `json:"reason"`
		Error     string                `json:"error"`
		To        uint64                `json:"to"`
		Replaced  dormouse.SnapshotID   `json:"replaced"`
	}
	if err := json.Unmarshal(e.Payload, &f); err != nil {
		return "", fmt.Errorf("understand event %d: %w", e.Seq, err)
	}
	switch e.Type { //nolint:exhaustive // only these come here
	case dormouse.SnapshotTaken:
		words := "— snapshot " + string(f.Snapshot)
		if f.Label != "" {
			words += ": " + oneLine(f.Label)
		}
		return words, nil
	case dormouse.SnapshotSkipped:
		if f.Error != "" {
			return "! snapshot " + string(f.Snapshot) + " was not taken: " + f.Error, nil
		}
	case dormouse.SnapshotDeleted:
		var all []string
		for _, id := range f.Snapshots {
			all = append(all, string(id))
		}
		words := "— deleted " + strings.Join(all, ", ")
		if f.Reason != "" {
			words += ": " + f.Reason
		}
		return words, nil
	case dormouse.WorkspaceSwapped:
		words := "— the files are those of " + string(f.Snapshot)
		if f.Snapshot == "" {
			words = "— there are no files, as at first"
		}
		if f.Replaced != "" {
			words += "; those before are kept in " + string(f.Replaced)
		}
		if f.Reason != dormouse.SwapSealed {
			return words, nil
		}
	case dormouse.WorkspaceRecovered:
		return recoveredInWords(e)
	case dormouse.HistoryTruncated:
		return fmt.Sprintf("— what was said after event %d is no part of the conversation any more", f.To), nil
	}
	return "", nil
}

// recoveredInWords says which files were lost and put back.
func recoveredInWords(e dormouse.Event) (string, error) {
	var p dormouse.WorkspaceRecovery
	if err := json.Unmarshal(e.Payload, &p); err != nil {
		return "", fmt.Errorf("understand event %d: %w", e.Seq, err)
	}
	words := "! files were recovered (" + oneLine(p.Reason) + ")"
	if !p.Since.IsZero() {
		words += "; what was written after " + p.Since.UTC().Format(time.RFC3339) + " may be missing"
	}
	if p.Uncompared != "" {
		words += "; they were not compared with the newest snapshot, which is lost (" + oneLine(p.Uncompared) + ")"
	}
	switch {
	case p.Count > 0 && p.Uncompared != "":
		words += "; as in older snapshots are" + filesInWords(p)
	case p.Count > 0:
		words += "; as in " + string(p.Snapshot) + " are" + filesInWords(p)
	}
	if p.Outside != "" {
		words += "; those found that had no room are kept in " + oneLine(p.Outside)
	}
	if p.Aside != "" {
		words += "; the volume before is kept as " + oneLine(p.Aside)
	}
	return words, nil
}

// filesInWords lists the first few files that were put back.
func filesInWords(p dormouse.WorkspaceRecovery) string {
	const few = 5 // a line is read at a glance
	var b strings.Builder
	for _, f := range p.Files[:min(few, len(p.Files))] {
		fmt.Fprintf(&b, " %.100q", f.Path)
		if f.SavedAs != "" {
			fmt.Fprintf(&b, " (found: %.100q)", f.SavedAs)
		}
		if f.Outside {
			b.WriteString(" (found: outside)")
		}
	}
	if more := p.Count - min(few, len(p.Files)); more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return b.String()
}
