package rig

import (
	"encoding/json"
	"fmt"
)

// Step is one reply of the scripted model.
type Step map[string]any

// Script is a prompt that tells the model of an account what to say.
func Script(tag string, steps ...Step) string {
	b, err := json.Marshal(steps)
	if err != nil {
		panic(fmt.Sprintf("script: %v", err)) // steps are plain values
	}
	return Tag(tag) + " SCRIPT" + string(b)
}

// Say is a reply in a few fragments.
func Say(text string) Step { return Step{"text": text, "chunks": 4} }

// Use is a reply that calls one tool.
func Use(tool string, input map[string]any) Step { return Step{"tool": tool, "input": input} }

// Bash is a reply that runs a command.
func Bash(command string) Step { return Use("bash", map[string]any{"command": command}) }
