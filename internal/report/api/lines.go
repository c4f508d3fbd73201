package api

import (
	"fmt"
	"strings"
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/term"
)

// Severity is how serious a line of an agent's report is.
type Severity int

// The severities, in ascending order.
const (
	Info    Severity = iota
	Warning          // something may be wrong, for example a rule that has never matched
	Fault            // something is wrong, and the administrator should act
)

// Line is one line of an agent's report about itself.
type Line struct {
	Label    string // what the line is about; several lines may have the same label
	Text     string
	Severity Severity
}

// faultIf returns Fault if wrong is true, and Info otherwise.
func faultIf(wrong bool) Severity {
	if wrong {
		return Fault
	}
	return Info
}

// Faults returns the faults in an agent's Lines. It joins the texts of neighbouring faults that have the same label.
func (n *Node) Faults(now time.Time) (out []Line) {
	for _, l := range n.Lines(now) {
		switch last := len(out) - 1; {
		case l.Severity != Fault:
		case last >= 0 && out[last].Label == l.Label:
			out[last].Text += "; " + l.Text
		default:
			out = append(out, l)
		}
	}
	return out
}

// Lines returns the agent's report about itself, without its containers and CPUs, in the order of 'trimtab status'. now
// is the time of the report.
func (n *Node) Lines(now time.Time) []Line {
	var all []Line
	line := func(label, text string, c Severity) { all = append(all, Line{label, text, c}) }
	if o := n.Observed; o != nil {
		line("mode", fmt.Sprintf("observe: nothing is changed; %s compared, %d differ (trimtab observe)", term.Count(o.Compared, "value"), o.Differ), Info)
	}
	n.addFaultLines(line)
	n.addSourceLines(line)
	for _, c := range n.Contested {
		if c.RepairReason != "" {
			line("contested", c.RepairReason, Fault)
		}
	}
	for _, c := range n.Contested {
		if c.GaveUpReason != "" {
			line("left alone", c.GaveUpReason, Fault)
		}
	}
	for _, r := range n.Rules {
		if r.Matched == 0 {
			line("rules", r.Name+": no match since the agent's start", Warning)
		} else {
			line("rules", fmt.Sprintf("%s: matched %d pods and containers", r.Name, r.Matched), Info)
		}
	}
	n.HookServers.addLines(line)
	n.ResourcePlugins.addLines(line)
	n.CPUClasses.addLines(line)
	n.Demotion.addLines(line)
	n.addDeviceLines(line)
	n.NRIHost.addLines(line)
	n.Cluster.addLines(line, now)
	return all
}

// addLine adds a line to an agent's report.
type addLine func(label, text string, c Severity)

// addFaultLines adds the faults of the agent itself.
func (n *Node) addFaultLines(line addLine) {
	for _, text := range textLines(n.ConfigError) {
		line("not in force", text, Fault)
	}
	for _, text := range n.Unsaved {
		line("not saved", text, Fault)
	}
	if n.Released {
		line("released", ReleasedText(n.ReleasedAt)+": all values were restored; the agent decides nothing until it is restarted", Fault)
	}
	for _, text := range textLines(n.Standby) {
		line("standby", text, Fault)
	}
	for _, name := range n.WithoutCgroup {
		line("no cgroup", name+" runs, and the tree at cgroup.root has no cgroup for it", Fault)
	}
}

// textLines returns the lines of s that are not empty.
func textLines(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == '\n' })
}

// addSourceLines adds a line for each attachment, for each source of pod specs, and for the source of the kubelet's
// CPUs. It also adds a line for each enabled hook that takes no effect, or of which it is unknown whether it takes
// effect.
func (n *Node) addSourceLines(line addLine) {
	for _, a := range n.Attachments {
		line("attachment", a.Text(), Info)
	}
	if len(n.Attachments) == 0 {
		line("attachment", "none", Warning)
	}
	for _, h := range n.Hooks {
		if h.Enabled && h.Finding.Support != lifecycle.Supported {
			line("hook "+h.Name, h.Effective(), max(Warning, faultIf(h.Finding.Support == lifecycle.NotSupported)))
		}
	}
	for _, p := range n.PodSpecs {
		line("pod specs", string(p.Name)+": "+p.State(), Info)
	}
	if n.KubeletCPUs != "" {
		line("kubelet's CPUs", n.KubeletCPUs, Info)
	}
}

// addLines adds a line for each hook server.
func (h *HookServers) addLines(line addLine) {
	if h == nil {
		return
	}
	if h.Error != "" {
		line("hook servers", h.Error, Fault)
	}
	for _, s := range h.Servers {
		line("hook servers", s.File+": "+s.State(), faultIf(s.Error != "" || !s.InForce))
	}
}

// addLines adds a line for each resource plugin, and for the last refused registration.
func (r *ResourcePlugins) addLines(line addLine) {
	const label = "resource plugins"
	if r == nil {
		return
	}
	if r.Error != "" {
		line(label, "no plugin can register: "+r.Error, Fault)
	}
	for _, p := range r.Plugins {
		line(label, p.Resource+": "+p.State(), faultIf(p.Error != ""))
	}
	switch n := len(r.Refused); {
	case n > 0:
		line(label, fmt.Sprintf("the agent refused a plugin for %s: %s", r.Refused[n-1].Resource, r.Refused[n-1].Reason), Fault)
	case r.Error == "" && len(r.Plugins) == 0:
		line(label, "no plugin has registered", Info)
	}
}

// addLines adds a line for each CPU class and each fault, and for repaired values.
func (c *CPUClasses) addLines(line addLine) {
	const label = "CPU classes"
	if c == nil {
		return
	}
	for _, class := range c.Classes {
		text := fmt.Sprintf("%s: CPUs %s", class.Name, class.CPUs)
		if class.Idle {
			text += ", which no balloon has"
		}
		line(label, text, Info)
	}
	for _, f := range c.Faults {
		line(label, f.Text(), Fault)
	}
	if c.Repairs > 0 {
		line(label, fmt.Sprintf("%s repaired after another program's write, the last: %s", term.Count(int(min(c.Repairs, 1<<30)), "value"), c.LastRepair), Info) //nolint:gosec // bounded
	}
}

// addLines adds a line for the NRI host and for each of its plugins.
func (h *NRIHost) addLines(line addLine) {
	const label = "nri host"
	switch {
	case h == nil:
		return
	case h.Flow == "":
		line(label, "no plugins are served: "+h.Error, Fault)
	default:
		line(label, h.Socket+", containers are "+h.Flow, Info)
	}
	for _, p := range h.Plugins {
		line(label, p.Name+": "+p.State(), faultIf(p.Error != ""))
	}
	if h.Rejected > 0 {
		line(label, fmt.Sprintf("%d clients of the socket rejected", h.Rejected), Info)
	}
}

// addLines adds a line for the connection to the API server, and for each service that uses it. now is the time of the
// report.
func (c *Cluster) addLines(line addLine, now time.Time) {
	const label = "API server"
	if c == nil {
		return
	}
	text := "never reached"
	if !c.Reached.IsZero() {
		text = "reached " + term.Age(now.Sub(c.Reached)) + " ago"
	}
	if c.Server != "" {
		text = c.Server + ", " + text
	}
	if c.Node != "" {
		text += ", node " + c.Node
	}
	line(label, withReason(text, c.Error), faultIf(c.Error != ""))
	for _, p := range c.Parts {
		line(label, p.Name+": "+p.Text(), faultIf(p.Error != ""))
	}
}

// withReason adds a reason to a state, if there is a reason.
func withReason(state, why string) string {
	if why == "" {
		return state
	}
	return state + ": " + why
}

// Text returns the state of the attachment in words.
func (a Attachment) Text() string {
	s := a.Name + ": " + a.State
	if a.Runtime != "" {
		s += ", " + a.Runtime
	}
	if len(a.Unsupported) > 0 {
		s += ", without " + strings.Join(a.Unsupported, ", ")
	}
	return withReason(s, a.Error)
}
