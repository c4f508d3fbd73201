package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Status has the fields of `trimtab status -o json` that kubectl trimtab reads. Agents may be older or newer than
// kubectl trimtab: it ignores unknown fields, and missing fields are empty. The values are those of
// internal/report/api.
type Status struct {
	Version     string       `json:"version"`
	Started     time.Time    `json:"started"`
	Standby     string       `json:"standby"`  // why the agent decides nothing; "" if it decides
	Released    bool         `json:"released"` // the agent has restored all values and decides nothing
	ConfigGen   uint64       `json:"configGeneration"`
	ConfigError string       `json:"configError"` // why a newer configuration file is not in force
	Unsaved     []string     `json:"unsaved"`     // state files that the agent could not write, with the reasons
	Attachments []Attachment `json:"attachments"`
	Containers  []struct {
		Pod   string `json:"pod"`
		State string `json:"state"`
	} `json:"containers"`
	Unapplied int `json:"unapplied"` // the number of decided values that are not in force
	Problems  int `json:"problems"`  // the number of problems of pods and containers
	Cluster   *struct {
		Error  string `json:"error"` // the error of the last request to the API server
		Config *struct {
			Waiting string `json:"waiting"` // the object that the agent must read first; "" if it does not wait
			Layers  []struct {
				Name    string `json:"name"`
				Version string `json:"version"`
			} `json:"layers"`
			Refused string `json:"refused"` // why the newest objects are not in force; "" if they are in force
		} `json:"config"`
	} `json:"cluster"`
}

// Attachment is one of the agent's connections to the runtime. WhyActive says since when and why the attachment is
// active. It is "" without attach: auto, and for an attachment that is not active.
type Attachment struct {
	Name      string `json:"name"`
	State     string `json:"state"`
	Runtime   string `json:"runtime"`
	WhyActive string `json:"inForce"`
}

// AttachmentStates returns a list of the attachments and their states, as one text.
func (s Status) AttachmentStates() string {
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

// HasApplied reports whether the agent has applied a version of a layer. A layer is a part of the configuration, such
// as a ConfigMap. If version is "", HasApplied reports whether the agent has no such layer. HasApplied returns an error
// if the agent does not read ConfigMaps, or has refused their configuration.
func (s Status) HasApplied(layer, version string) (bool, error) {
	if s.Cluster == nil || s.Cluster.Config == nil {
		return false, fmt.Errorf("the agent does not read ConfigMaps: set cluster: {enabled: true} in the agent's configuration file")
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

// Violations returns the number of requests and decided values that are not in force.
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

// Report has the fields of `trimtab doctor -o json` that kubectl trimtab reads.
type Report struct {
	Problems int     `json:"problems"`     // the number of checks with the result "problem"
	Unknown  int     `json:"couldNotTell"` // the number of checks with the result "could not tell"
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
	Found  string `json:"found"`  // what the check has found on the node
	Why    string `json:"why"`    // why this is a problem
	Do     string `json:"do"`     // what the user can do
}

// Plan has the fields of `trimtab plan -o json` that kubectl trimtab reads.
type Plan struct {
	// Containers are the containers of the new pods, with the CPUs that they would get.
	Containers []struct {
		Pod  string `json:"pod"`
		Name string `json:"container"`
		CPUs string `json:"cpus"`
	} `json:"containers"`
	// Rejected are the containers that a policy would refuse, and the pods if Container is "".
	Rejected []struct {
		Pod       string `json:"pod"`
		Container string `json:"container"`
		Reason    string `json:"reason"`
	} `json:"rejected"`
	Moves []Move `json:"moves"`
}

// Move is a container whose CPUs the plan would change. Before and After are lists of CPUs.
type Move struct {
	Pod       string `json:"pod"`
	Container string `json:"container"`
	Before    string `json:"before"`
	After     string `json:"after"`
}

// Ask runs the agent's program in the pod of agent a, with args and -o json, and decodes the program's output. in is
// the program's standard input. If the exit code is not zero, Ask also decodes the output, and returns it with an
// *ExitError.
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
