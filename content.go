package dormouse

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Block is one piece of a message: text, or something richer that is kept as
// the client or the model wrote it.
type Block struct {
	Type string `json:"type"`
	Text string `json:"text,omitempty"`
	// Source, Title and Context belong to images and documents; Source, Title, Content
	// and Citations to search results, which only tools bring.
	Source    json.RawMessage `json:"source,omitempty"`
	Title     string          `json:"title,omitempty"`
	Context   string          `json:"context,omitempty"`
	Content   json.RawMessage `json:"content,omitempty"`
	Citations json.RawMessage `json:"citations,omitempty"`
}

// searchResult is the type of a block that a search found.
const searchResult = "search_result"

// Text makes one text block.
func Text(s string) Block { return Block{Type: "text", Text: s} }

// Limits of what one client may hand in.
const (
	// MaxBlocks bounds the blocks of one message.
	MaxBlocks = 1000
	// MaxContent bounds the bytes of one message.
	MaxContent = 32 << 20
)

// ValidateContent refuses content that no model could be sent: no blocks,
// unknown blocks, empty text, NUL, bad UTF-8, too much of it.
func ValidateContent(content []Block) error {
	for i, b := range content {
		if b.Type == searchResult {
			return fmt.Errorf("content[%d].type is %s, which only a tool brings: %w", i, searchResult, ErrInvalid)
		}
	}
	return ValidateResult(content)
}

// ValidateResult is ValidateContent for what a tool brings.
func ValidateResult(content []Block) error {
	if len(content) == 0 {
		return fmt.Errorf("content is empty: %w", ErrInvalid)
	}
	if len(content) > MaxBlocks {
		return fmt.Errorf("content has %d blocks, at most %d are taken: %w", len(content), MaxBlocks, ErrTooLarge)
	}
	size := 0
	for i, b := range content {
		size += len(b.Text) + len(b.Source) + len(b.Title) + len(b.Context) + len(b.Content) + len(b.Citations)
		switch b.Type {
		case "text":
			if strings.TrimSpace(b.Text) == "" {
				return fmt.Errorf("content[%d].text is empty: %w", i, ErrInvalid)
			}
			if len(b.Source) > 0 {
				return fmt.Errorf("content[%d] is text and cannot have a source: %w", i, ErrInvalid)
			}
		case "image", "document", searchResult:
			if len(b.Source) == 0 {
				return fmt.Errorf("content[%d].source is missing: %w", i, ErrInvalid)
			}
		default:
			return fmt.Errorf("content[%d].type is %q; it must be text, image or document: %w", i, truncate(b.Type, 40), ErrInvalid)
		}
		for _, s := range []string{b.Text, b.Title, b.Context, string(b.Source), string(b.Content), string(b.Citations)} {
			if err := ValidateText(s); err != nil {
				return fmt.Errorf("content[%d]: %w", i, err)
			}
		}
	}
	if size > MaxContent {
		return fmt.Errorf("content is %d bytes, at most %d are taken: %w", size, MaxContent, ErrTooLarge)
	}
	return nil
}

// ValidateText refuses bytes that are not text.
func ValidateText(s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("text is not valid UTF-8: %w", ErrInvalid)
	}
	if strings.IndexByte(s, 0) >= 0 {
		return fmt.Errorf("text contains a NUL byte: %w", ErrInvalid)
	}
	return nil
}

// CleanText makes text of whatever bytes a tool printed.
func CleanText(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	return strings.ReplaceAll(s, "\x00", "\uFFFD")
}
