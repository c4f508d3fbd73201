package api

import (
	"fmt"

	"github.com/trimtab/trimtab/internal/report/term"
)

// Demotion is how much memory the kernel has moved from fast to slow memory nodes at the agent's request.
type Demotion struct {
	Containers int    `json:"containers"`          // number of containers with fast and slow memory
	Skipped    int    `json:"leftAlone,omitempty"` // number of these containers that the agent skips
	Moved      int64  `json:"moved"`               // bytes moved since the agent's start
	Reason     string `json:"reason,omitempty"`    // why nothing is moved on this node
}

// ContainerDemotion is how much memory of one container the kernel has moved to slow memory nodes.
type ContainerDemotion struct {
	Anonymous int64  `json:"anonymous"`        // bytes of anonymous memory on the container's memory nodes
	Slow      int64  `json:"slow"`             // bytes of this anonymous memory on slow memory nodes
	Moved     int64  `json:"moved"`            // bytes moved since the agent's start
	Reason    string `json:"reason,omitempty"` // why the agent skips the container
}

// Text returns the demotion of a container's memory as a sentence.
func (d *ContainerDemotion) Text() string {
	text := fmt.Sprintf("%s of %s of its anonymous memory are in slow memory, %s were moved there", term.Bytes(d.Slow), term.Bytes(d.Anonymous), term.Bytes(d.Moved))
	if d.Reason != "" {
		text += "; skipped: " + d.Reason
	}
	return text
}

// addLines adds a line about moved memory.
func (d *Demotion) addLines(line addLine) {
	const label = "demotion"
	switch {
	case d == nil:
	case d.Reason != "":
		line(label, "no memory is moved to slower nodes: "+d.Reason, Fault)
	default:
		text := fmt.Sprintf("%s moved to slow memory, from %s with fast and slow memory", term.Bytes(d.Moved), term.Count(d.Containers, "container"))
		if d.Skipped > 0 {
			text += fmt.Sprintf("; %d skipped (trimtab explain says why)", d.Skipped)
		}
		line(label, text, Info)
	}
}
