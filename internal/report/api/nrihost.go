package api

import (
	"fmt"
	"strings"
	"time"
)

// NRIHost is the state of the agent's NRI host, which serves NRI to plugins if the runtime has no NRI.
type NRIHost struct {
	Socket string `json:"socket"`
	// Flow says whether the host calls the plugins before or after the runtime creates a container. It is "" while the
	// host does not run.
	Flow    string      `json:"flow,omitempty"`
	Error   string      `json:"error,omitempty"` // why the host does not run
	Plugins []NRIPlugin `json:"plugins,omitempty"`
	// Rejected counts rejected clients: plugins whose name another plugin has, and clients that are not plugins.
	Rejected uint64 `json:"turnedAway,omitempty"`
}

// NRIPlugin is one plugin that is or was connected.
type NRIPlugin struct {
	Name      string `json:"name"` // index and name
	Connected bool   `json:"connected"`
	Calls     uint64 `json:"calls"`
	Failed    uint64 `json:"failed"` // number of failed calls
	// Average and Longest are the average and the longest duration of a call of the plugin.
	Average time.Duration `json:"averageNanoseconds"`
	Longest time.Duration `json:"longestNanoseconds"`
	Error   string        `json:"error,omitempty"` // the last error
	// Sets has NRI's names of the container fields that the plugin has set or removed.
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
	return withReason(s, p.Error)
}
