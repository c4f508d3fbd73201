package page

import (
	"fmt"
	"strings"
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/cpumap"
	"github.com/trimtab/trimtab/internal/report/term"
)

// verdict says in a sentence whether the node or an object on the node is in order, and gives reasons.
type verdict struct {
	Good    bool     `json:"good"` // the node or the object is in order
	Text    string   `json:"text"`
	Reasons []string `json:"reasons,omitempty"`
}

// maxNamedProblems is the largest number of problems that a verdict names. The verdict names only the first problem of
// each container.
const maxNamedProblems = 5

// nodeVerdict returns the verdict on a node. A value that waits for the start of its container is not a fault.
func nodeVerdict(n api.Node) verdict {
	var why []string
	add := func(format string, args ...any) { why = append(why, term.Clean(fmt.Sprintf(format, args...))) }
	for _, f := range n.Faults(time.Now()) {
		add("%s: %s", strings.ToUpper(f.Label[:1])+f.Label[1:], f.Text)
	}
	if !n.Connected() && n.Standby == "" {
		add("No runtime is attached: new containers start without the values that they request.")
	}
	if missing := countMissing(n); missing > 0 {
		add("%s not in force; the table of containers shows where.", countAre(missing, "value"))
	}
	named := 0
	for _, c := range n.Containers {
		if len(c.Problems) > 0 && named < maxNamedProblems {
			named++
			add("%s: %s", strings.TrimSuffix(c.Pod+"/"+c.Name, "/"), c.Problems[0].Sentence())
		}
	}
	if n.Problems > named {
		add("%s reported in total; the table of containers shows where.", countAre(n.Problems, "problem"))
	}
	if len(why) == 0 {
		return verdict{Good: true, Text: "Healthy: all decided values are in force."}
	}
	return verdict{Text: "Not healthy: " + term.Count(len(why), "finding"), Reasons: why}
}

// countMissing counts the values that are not in force. It does not count values of containers that have not started.
func countMissing(n api.Node) int {
	all := n.Unapplied
	for _, c := range n.Containers {
		if c.State == lifecycle.StateCreated.String() {
			all -= api.NotApplied(c.Values)
		}
	}
	return max(0, all)
}

// factsOf describes a node in a few short phrases, such as "3 containers".
func factsOf(n api.Node) []string {
	online := cpumap.CPUs(n.CPUs.Online)
	facts := []string{
		fmt.Sprintf("%s in %s", term.Count(len(online), "CPU"), term.Count(len(n.CPUs.Nodes), "NUMA node")),
		term.Count(len(n.Containers), "container"),
		fmt.Sprintf("%d of %s owned by %s", len(cpumap.CPUs(n.CPUs.Exclusive)), term.Count(len(online), "CPU"), term.Count(len(filter(users(n.CPUs), func(u cpuUser) bool { return u.Pod != "" })), "pod")),
	}
	for _, a := range n.Attachments {
		facts = append(facts, term.Clean(a.Text()))
	}
	return facts
}

// countAre returns for example "1 value is" or "2 values are".
func countAre(n int, noun string) string {
	if n == 1 {
		return "1 " + noun + " is"
	}
	return fmt.Sprintf("%d %ss are", n, noun)
}
