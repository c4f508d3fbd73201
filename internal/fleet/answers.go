package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Status has the fields of `trimtab status -o json` that the plugin reads. Agents may be older or newer than the
// plugin: the plugin ignores unknown fields, and missing fields are empty. The values are those of internal/report/api.
type Status struct {
	Version     string       `json:"version"`
	Started     time.Time    `json:"started"`
	Standby     string       `json:"standby"`
	Released    bool         `json:"released"`
	ConfigGen   uint64       `json:"configGeneration"`
	ConfigError string       `json:"configError"`
	Unsaved     []string     `json:"unsaved"`
	Attachments []Attachment `json:"attachments"`
	Containers  []struct {
		Pod   string `json:"pod"`
		State string `json:"state"`
	} `json:"containers"`
	Unapplied int `json:"unapplied"`
	Problems  int `json:"problems"`
	Cluster   *struct {
		Error  string `json:"error"`
		Config *struct {
			Waiting string `json:"waiting"`
			Layers  []struct {
				Name    string `json:"name"`
				Version string `json:"version"`
			} `json:"layers"`
			Refused string `json:"refused"`
		} `json:"config"`
	} `json:"cluster"`
}

// Attachment is one way in which an agent is attached to the runtime.
type Attachment struct {
	Name      string `json:"name"`
	State     string `json:"state"`
	Runtime   string `json:"runtime"`
	WhyActive string `json:"inForce"`
}

// Attachment lists the attachments and their states.
func (s Status) Attachment() string {
	var all []string
	for _, a := range s.Attachments {
		all = append(all, a.Name+" "+a.State)
	}
	return strings.Join(all, ", ")
}

// Attached reports whether the agent has a working connection to the runtime.
func (s Status) Attached() bool {
	for _, a := range s.Attachments {
		if a.State == "connected" || a.State == "synchronised" {
			return true
		}
	}
	return false
}

// HasApplied reports whether the agent has applied a version of a layer. The version "" means that the layer must not
// exist. It returns an error for an agent that does not read ConfigMaps, or that has refused them.
func (s Status) HasApplied(layer, version string) (bool, error) {
	if s.Cluster == nil || s.Cluster.Config == nil {
		return false, fmt.Errorf("the agent does not read ConfigMaps: set cluster: {enabled: true} in its file")
	}
	c := s.Cluster.Config
	if c.Refused != "" {
		return false, fmt.Errorf("the agent refuses the configuration: %s", strings.ReplaceAll(c.Refused, "\n", "; "))
	}
	for _, l := range c.Layers {
		if l.Name == layer {
			return l.Version == version, nil
		}
	}
	return version == "", nil
}

// Violations counts requests and decided values that are not in force.
func (s Status) Violations() int { return s.Unapplied + s.Problems }

// Fault returns one line about what is wrong with the agent itself, or "".
func (s Status) Fault() string {
	switch {
	case s.ConfigError != "":
		return "configuration not in force: " + strings.ReplaceAll(s.ConfigError, "\n", "; ")
	case s.Standby != "":
		return "standby: " + s.Standby
	case s.Released:
		return "the agent was released and decides nothing"
	case len(s.Unsaved) > 0:
		return "not saved on disk: " + strings.Join(s.Unsaved, "; ")
	}
	return ""
}

// Report has the fields of `trimtab doctor -o json` that the plugin reads.
type Report struct {
	Problems int     `json:"problems"`
	Unknown  int     `json:"couldNotTell"`
	Checks   []Check `json:"checks"`
}

// OK reports whether the check with this name has passed.
func (r Report) OK(name string) bool {
	return slices.ContainsFunc(r.Checks, func(c Check) bool { return c.Name == name && c.Result == "ok" })
}

// Check is one check of 'trimtab doctor'.
type Check struct {
	Name   string `json:"check"`
	Result string `json:"result"` // "ok", "problem", "could not tell"
	Found  string `json:"found"`
	Why    string `json:"why"`
	Do     string `json:"do"`
}

// Plan has the fields of `trimtab plan -o json` that the plugin reads.
type Plan struct {
	Containers []struct {
		Pod  string `json:"pod"`
		Name string `json:"container"`
		CPUs string `json:"cpus"`
	} `json:"containers"`
	Rejected []struct {
		Pod       string `json:"pod"`
		Container string `json:"container"`
		Reason    string `json:"reason"`
	} `json:"rejected"`
	Moves []Move `json:"moves"`
}

// Move is a container whose CPUs would change.
type Move struct {
	Pod       string `json:"pod"`
	Container string `json:"container"`
	Before    string `json:"before"`
	After     string `json:"after"`
}

// Ask runs the agent's program with -o json and decodes its answer. It also decodes the answer if the exit code is
// not zero, and then returns the *ExitError, too.
func Ask[T any](ctx context.Context, c *Cluster, a *Agent, in []byte, args ...string) (T, error) {
	var answer T
	out, err := c.Output(ctx, a, in, append(args, "-o", "json")...)
	if len(out) == 0 && err != nil {
		return answer, err
	}
	if wrong := json.Unmarshal(out, &answer); wrong != nil && err == nil {
		return answer, fmt.Errorf("read the answer of pod %s to %q: %w", a.Pod, strings.Join(args, " "), wrong)
	}
	return answer, err
}
