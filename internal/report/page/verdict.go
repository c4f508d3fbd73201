package page

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/cpumap"
	"github.com/trimtab/trimtab/internal/report/term"
)

// verdict is a sentence that says whether something is in order, and the reasons.
type verdict struct {
	Good    bool     `json:"good"`
	Text    string   `json:"text"`
	Reasons []string `json:"reasons,omitempty"`
}

// maxNamed is how many problems of pods the verdict names.
const maxNamed = 5

// judge returns the verdict on a node. A value that waits for a container's start is not a fault.
func judge(n api.Node) verdict {
	var why []string
	add := func(format string, args ...any) { why = append(why, term.Clean(fmt.Sprintf(format, args...))) }
	if n.Released {
		add("The agent was %s: all values were restored, and it decides nothing until it is started again.", api.ReleasedSince(n.ReleasedAt))
	}
	if n.Standby != "" {
		add("This agent decides nothing: %s.", n.Standby)
	}
	if !n.Connected() && n.Standby == "" {
		add("No runtime is attached: new containers start without the values that they request.")
	}
	if n.ConfigError != "" {
		add("The newest configuration was refused, the previous one is in force: %s", strings.ReplaceAll(n.ConfigError, "\n", "; "))
	}
	for _, u := range n.Unsaved {
		add("Not saved for a restart: %s", u)
	}
	for _, name := range n.WithoutCgroup {
		add("%s runs and has no cgroup below cgroup.root: none of its values is in force.", name)
	}
	for _, c := range n.Contested {
		if text := cmp.Or(c.Kept, c.Left); text != "" {
			add("Another program writes the same file: %s", text)
		}
	}
	why = append(why, servers(n)...)
	if missing := missing(n); missing > 0 {
		add("%s not in force; the table of containers shows where.", are(missing, "value"))
	}
	named := 0
	for _, c := range n.Containers {
		if len(c.Problems) > 0 && named < maxNamed {
			named += len(c.Problems)
			add("%s: %s", strings.TrimSuffix(c.Pod+"/"+c.Name, "/"), c.Problems[0].Sentence())
		}
	}
	if n.Problems > named {
		add("%s reported in total; the table of containers shows where.", are(n.Problems, "problem"))
	}
	if len(why) == 0 {
		return verdict{Good: true, Text: "Healthy: all decided values are in force."}
	}
	return verdict{Text: term.Count(len(why), "thing") + " to look at", Reasons: why}
}

// servers returns the faults of hook servers and hooks.
func servers(n api.Node) (why []string) {
	for _, h := range n.Hooks {
		if h.Enabled && h.Finding.Support == lifecycle.NotSupported {
			why = append(why, term.Clean("Hook "+h.Name+" is "+h.Effective()+"."))
		}
	}
	if n.HookServers == nil {
		return why
	}
	if n.HookServers.Error != "" {
		why = append(why, term.Clean("Hook servers: "+n.HookServers.Error))
	}
	for _, s := range n.HookServers.Servers {
		if s.Error != "" || !s.InForce {
			why = append(why, term.Clean("Hook server "+s.File+": "+s.State()))
		}
	}
	return why
}

// missing counts values that are not in force, without those of containers that have not started.
func missing(n api.Node) int {
	all := n.Unapplied
	for _, c := range n.Containers {
		if c.State != lifecycle.StateCreated.String() {
			continue
		}
		for _, v := range c.Values {
			if !v.Applied {
				all--
			}
		}
	}
	return max(0, all)
}

// factsOf describes a node, in short clauses.
func factsOf(n api.Node) []string {
	online := cpumap.CPUs(n.CPUs.Online)
	facts := []string{
		fmt.Sprintf("%s in %s", term.Count(len(online), "CPU"), term.Count(len(n.CPUs.Nodes), "NUMA node")),
		term.Count(len(n.Containers), "container"),
		fmt.Sprintf("%d of %s owned by %s", len(cpumap.CPUs(n.CPUs.Exclusive)), term.Count(len(online), "CPU"), term.Count(owners(n), "pod")),
	}
	for _, a := range n.Attachments {
		text := a.Name + ": " + a.State
		if a.Runtime != "" {
			text += " to " + a.Runtime
		}
		facts = append(facts, term.Clean(text))
	}
	return facts
}

func owners(n api.Node) int {
	pods := map[string]bool{}
	for _, g := range n.CPUs.Grants {
		pods[g.Pod] = true
	}
	return len(pods)
}

func are(n int, what string) string {
	if n == 1 {
		return "1 " + what + " is"
	}
	return fmt.Sprintf("%d %ss are", n, what)
}
