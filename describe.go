package dormouse

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits of what people may say about a session.
const (
	MaxTitle         = 500
	MaxTags          = 32
	MaxTag           = 64
	MaxMetadata      = 64
	MaxMetadataKey   = 64
	MaxMetadataValue = 1024
)

// Description is the title, the tags and the metadata of a session. A part that is not
// given stays as it is.
type Description struct {
	Title    *string
	Tags     *[]string
	Metadata map[string]string
}

// Validate refuses what is over a limit or cannot be shown.
func (d Description) Validate() error {
	var texts []string
	if d.Title != nil {
		if n := utf8.RuneCountInString(*d.Title); n > MaxTitle {
			return fmt.Errorf("title has %d characters, at most %d are taken: %w", n, MaxTitle, ErrTooLarge)
		}
		texts = append(texts, *d.Title)
	}
	if d.Tags != nil {
		if len(*d.Tags) > MaxTags {
			return fmt.Errorf("%d tags, at most %d are taken: %w", len(*d.Tags), MaxTags, ErrTooLarge)
		}
		for _, t := range *d.Tags {
			if t == "" || len(t) > MaxTag {
				return fmt.Errorf("tag %q must be 1 to %d bytes: %w", truncate(t, 40), MaxTag, ErrInvalid)
			}
		}
		texts = append(texts, *d.Tags...)
	}
	if len(d.Metadata) > MaxMetadata {
		return fmt.Errorf("%d pairs of metadata, at most %d are taken: %w", len(d.Metadata), MaxMetadata, ErrTooLarge)
	}
	for k, v := range d.Metadata {
		if k == "" || utf8.RuneCountInString(k) > MaxMetadataKey || utf8.RuneCountInString(v) > MaxMetadataValue {
			return fmt.Errorf("metadata %q: a key has 1 to %d characters, a value at most %d: %w",
				truncate(k, 40), MaxMetadataKey, MaxMetadataValue, ErrInvalid)
		}
		texts = append(texts, k, v)
	}
	for _, s := range texts {
		if err := ValidateText(s); err != nil {
			return err
		}
	}
	return nil
}

// CleanTags sorts tags and drops repeats.
func CleanTags(tags []string) []string {
	tags = slices.Clone(tags)
	slices.Sort(tags)
	return slices.Compact(tags)
}

// TitleOf is the title of a session without one: the first words of its first prompt.
func TitleOf(content []Block) string {
	const most = 80
	for _, b := range content {
		line, _, _ := strings.Cut(strings.TrimSpace(b.Text), "\n")
		if line = strings.TrimSpace(line); line != "" {
			return truncate(line, most)
		}
	}
	return ""
}
