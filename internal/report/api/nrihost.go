package api

import (
	"fmt"
	"strings"
	"time"
)

// NRIHost is the host that serves NRI to plugins in front of a runtime without NRI.
type NRIHost struct {
	Socket string `json:"socket"`
	// Flow says when the host asks plugins about a creation. It is empty while the host does not run.
	Flow    string      `json:"flow,omitempty"`
	Error   string      `json:"error,omitempty"` // why it does not run
	Plugins []NRIPlugin `json:"plugins,omitempty"`
	// Turned counts rejected clients: second plugins with the same name, and clients that are not plugins.
	Turned uint64 `json:"turnedAway,omitempty"`
}

// NRIPlugin is one plugin that is or was connected.
type NRIPlugin struct {
	Name      string `json:"name"` // with its index
	Connected bool   `json:"connected"`
	Calls     uint64 `json:"calls"`
	Failed    uint64 `json:"failed"`
	// Average and Longest are how long its calls took.
	Average time.Duration `json:"averageNanoseconds"`
	Longest time.Duration `json:"longestNanoseconds"`
	Error   string        `json:"error,omitempty"` // the last one
	// Sets names the fields of containers that it has set, in NRI's words.
	Sets []string `json:"sets,omitempty"`
}

// State describes the plugin in words.
func (p NRIPlugin) State() string {
	s := "not connected to the socket"
	if p.Connected {
		s = "connected"
	}
	if p.Calls > 0 {
		s += fmt.Sprintf(", %d calls, %d failed, %v on average, %v at most", p.Calls, p.Failed, p.Average.Round(time.Microsecond), p.Longest.Round(time.Microsecond))
	}
	if len(p.Sets) > 0 {
		s += ", sets " + strings.Join(p.Sets, ", ")
	}
	if p.Error != "" {
		s += ": " + p.Error
	}
	return s
}
