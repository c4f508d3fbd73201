package status

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/cpumap"
	"github.com/trimtab/trimtab/internal/report/term"
)

// Options configure the output.
type Options struct {
	Color bool
	Now   time.Time // for ages
	// Namespace and Class limit the table of containers to those of a namespace and a class; "" means all.
	Namespace, Class string
	// Matches reports whether a pod with these labels is in the table of containers; nil means all.
	Matches func(labels map[string]string) bool
	// Wide shows values as the kernel and the API have them, without units for people.
	Wide bool
	// Width is the maximum width of lines of prose; 0 means 100 columns.
	Width int
}

// shows reports whether the table of containers has this one.
func (o Options) shows(c api.Container) bool {
	return (o.Namespace == "" || strings.HasPrefix(c.Pod, o.Namespace+"/")) && (o.Class == "" || c.Class == o.Class) &&
		(o.Matches == nil || o.Matches(c.Labels))
}

// RenderStatus shows the state of a node.
func RenderStatus(w io.Writer, n api.Node, o Options) error {
	var b bytes.Buffer
	head := table(&b)
	fmt.Fprintf(head, "trimtab\t%s, up %s\n", term.Clean(n.Version), age(o.Now.Sub(n.Started)))
	from := term.Clean(n.ConfigFile)
	if from == "" {
		from = "defaults, no file"
	}
	fmt.Fprintf(head, "configuration\t%s, generation %d\n", from, n.ConfigGen)
	observed(head, n.Observed)
	alarms(head, n, o)
	attachments(head, n, o)
	contested(head, n.Contested, o)
	rules(head, n.Rules, o)
	hookServers(head, n.HookServers, o)
	resourcePlugins(head, n.ResourcePlugins, o)
	nriHost(head, n.NRIHost, o)
	cluster(head, n.Cluster, o)
	trouble := o.trouble(n)
	if n.Observed != nil || n.Released && n.Unapplied == 0 {
		trouble = term.Count(n.Problems, "problem")
	}
	fmt.Fprintf(head, "containers\t%d, %s\n", len(n.Containers), trouble)
	flush(head)
	fmt.Fprint(&b, "\nCPUs\n")
	o.picture(&b, n)
	pools(&b, n.CPUs.Pools)
	containers(&b, n, o)
	return send(w, &b)
}

// maxBoxedNodes is how many CPUs are drawn as boxes of sockets, NUMA nodes and cores. A picture of more CPUs does not
// fit a screen, so each NUMA node then gets a line.
const maxBoxedNodes = 128

// picture draws who may use which CPUs. For CPUs that nobody owns it shows how many running containers may use
// them.
func (o Options) picture(w io.Writer, n api.Node) {
	cpus := n.CPUs
	if len(cpumap.CPUs(cpus.Online)) > maxBoxedNodes || len(cpus.Nodes) == 0 {
		cpumap.New(cpus).Text(w, cpus)
		return
	}
	var uses []cpumap.Use
	for _, c := range n.Containers {
		if c.State == "running" {
			uses = append(uses, cpumap.Use{Pod: c.Pod, CPUs: c.CPUs})
		}
	}
	for _, line := range cpumap.NewTiles(cpus, uses).Block(max(cmp.Or(o.Width, 100)-2, 40), term.Ink{On: o.Color}).Lines {
		fmt.Fprintln(w, "  "+line)
	}
}

// alarms prints the faults of the agent as a whole.
func alarms(head io.Writer, n api.Node, o Options) {
	alarmed := func(label string, texts []string, then string) {
		for _, text := range texts {
			fmt.Fprintf(head, "%s\t%s\n", label, o.alarm(term.Clean(text)+then))
			label = "" // once, at the first line
		}
	}
	alarmed("not in force", lines(n.ConfigError), "")
	alarmed("not saved", n.Unsaved, "")
	if n.Released {
		fmt.Fprintf(head, "released\t%s\n", o.alarm(api.ReleasedSince(n.ReleasedAt)+": everything was restored; the agent decides nothing until it is restarted"))
	}
	if n.Standby != "" {
		alarmed("standby", []string{n.Standby}, "")
	}
	alarmed("no cgroup", n.WithoutCgroup, " runs, and the tree at cgroup.root has no such cgroup")
}

// attachments writes the attachments, and the sources from which the agent knows pods.
func attachments(head io.Writer, n api.Node, o Options) {
	if len(n.Attachments) == 0 {
		fmt.Fprintf(head, "attachment\t%s\n", o.alarm("none"))
	}
	for _, a := range n.Attachments {
		fmt.Fprintf(head, "attachment\t%s\n", attachment(a))
	}
	for _, h := range n.Hooks {
		if h.Enabled && h.Finding.Support != lifecycle.Supported {
			fmt.Fprintf(head, "hook %s\t%s\n", term.Clean(h.Name), o.alarm(term.Clean(h.Effective())))
		}
	}
	label := "pod specs"
	for _, p := range n.PodSpecs {
		fmt.Fprintf(head, "%s\t%s: %s\n", label, term.Clean(string(p.Name)), term.Clean(p.State()))
		label = ""
	}
	if n.KubeletCPUs != "" {
		fmt.Fprintf(head, "kubelet's CPUs\t%s\n", term.Clean(n.KubeletCPUs))
	}
}

// contested writes the files that another program keeps changing.
func contested(head io.Writer, files []api.Contested, o Options) {
	for _, c := range files {
		if c.Kept != "" {
			fmt.Fprintf(head, "contested\t%s\n", o.alarm(term.Clean(c.Kept)))
		}
		if c.Left != "" {
			fmt.Fprintf(head, "left alone\t%s\n", o.alarm(term.Clean(c.Left)))
		}
	}
}

// rules writes how often each rule has matched. A rule that has never matched may be wrong.
func rules(head io.Writer, all []api.Rule, o Options) {
	label := "rules"
	for _, r := range all {
		state := fmt.Sprintf("%s: matched %d", r.Name, r.Matched)
		if r.Matched == 0 {
			state = o.alarm(r.Name + ": no match since the agent's start")
		}
		fmt.Fprintf(head, "%s\t%s\n", label, state)
		label = ""
	}
}

func hookServers(head io.Writer, h *api.HookServers, o Options) {
	if h == nil {
		return
	}
	label := "hook servers"
	if h.Error != "" {
		fmt.Fprintf(head, "%s\t%s\n", label, o.alarm(term.Clean(h.Error)))
		label = ""
	}
	for _, s := range h.Servers {
		state := term.Clean(s.File + ": " + s.State())
		if s.Error != "" || !s.InForce {
			state = o.alarm(state)
		}
		fmt.Fprintf(head, "%s\t%s\n", label, state)
		label = ""
	}
}

func attachment(a api.Attached) string {
	s := term.Clean(a.Name) + ": " + term.Clean(a.State)
	if a.Runtime != "" {
		s += ", " + term.Clean(a.Runtime)
	}
	if len(a.Lacks) > 0 {
		s += ", without " + term.Clean(strings.Join(a.Lacks, ", "))
	}
	if a.Error != "" {
		s += ": " + term.Clean(a.Error)
	}
	return s
}

func (o Options) trouble(n api.Node) string {
	switch {
	case n.Unapplied+n.Problems > 0:
		return o.alarm(fmt.Sprintf("%s not applied, %s; trimtab explain NAMESPACE/POD says why",
			term.Count(n.Unapplied, "value"), term.Count(n.Problems, "problem")))
	case !n.Connected() && n.Standby == "":
		return o.alarm("no runtime is attached: new containers start without values")
	}
	return "everything decided is in force"
}

func pools(w io.Writer, list []api.Pool) {
	rows(w, "POOL\tCLASS\tSIZE\tCPUS\tCONTAINERS", list, func(p api.Pool) []string {
		return []string{term.Clean(p.Name), dash(p.Class), size(p.CPUs), dash(p.CPUs), fmt.Sprint(p.Members)}
	})
}

// size formats how many CPUs a list has.
func size(list string) string { return term.CPUs(1000 * int64(len(cpumap.CPUs(list)))) }

// limits returns the columns about what a container may use: with units, or, if Wide is set, as the kernel has
// them.
func (o Options) limits(c api.Container) []string {
	switch l := c.Limits; {
	case l == nil:
		return []string{"-", "-"}
	case o.Wide:
		return []string{fmt.Sprint(l.CPUQuota, " ", l.CPUPeriod), fmt.Sprint(l.Memory)}
	default:
		cpu, memory := "max", "max"
		if l.CPUQuota > 0 {
			cpu = term.CPUs(l.CPUQuota * 1000 / max(l.CPUPeriod, 1))
		}
		if l.Memory > 0 {
			memory = term.Bytes(l.Memory)
		}
		return []string{cpu, memory}
	}
}

func containers(w io.Writer, n api.Node, o Options) {
	all := n.Containers
	list := slices.DeleteFunc(slices.Clone(all), func(c api.Container) bool { return !o.shows(c) })
	slices.SortStableFunc(list, func(a, b api.Container) int { return cmp.Compare(a.Pod, b.Pod) })
	if len(list) < len(all) {
		fmt.Fprintf(w, "\n%d of %d containers are shown\n", len(list), len(all))
	}
	head := "POD\tCONTAINER\tSTATE\tCLASS\tSEAT\tCPUS\tLIMIT\tMEMORY\tVALUES\tPROBLEMS"
	if o.Wide {
		head += "\tQOS\tID\tWHY"
	}
	rows(w, head, list, func(c api.Container) []string {
		applied, all := 0, len(c.Values)+len(c.PodValues)
		for _, v := range slices.Concat(c.Values, c.PodValues) {
			if v.Applied {
				applied++
			}
		}
		values := fmt.Sprintf("%d/%d", applied, all)
		if n.Released {
			values = "-"
		}
		problems := "-"
		if len(c.Problems) > 0 {
			problems = o.alarm(fmt.Sprint(len(c.Problems)))
		}
		row := []string{term.Clean(c.Pod), dash(c.Name), dash(c.State), dash(c.Class), dash(c.CPUGroup), dash(c.CPUs)}
		row = append(append(row, o.limits(c)...), values, problems)
		if o.Wide {
			row = append(row, dash(c.QoS), dash(c.ID), dash(c.SeatWhy))
		}
		return row
	})
}

// RenderEvent shows one event: a line for the event itself, and an indented line for each decision.
func RenderEvent(w io.Writer, e api.Event, o Options) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s #%d %s", e.Time.Format("15:04:05.000"), e.Seq, term.Clean(e.Kind))
	if e.Pod != "" {
		fmt.Fprintf(&b, " %s", term.Clean(strings.TrimSuffix(e.Pod+"/"+e.Container, "/")))
	}
	fmt.Fprintf(&b, " via %s in %s\n", dash(e.From), e.Took.Round(time.Microsecond))
	for _, v := range e.Values {
		fmt.Fprintf(&b, "    %s = %s", term.Clean(v.Field), term.Clean(v.Value))
		fmt.Fprintf(&b, "  [%s", dash(v.Why.Hook))
		if v.Why.Source != "" {
			fmt.Fprintf(&b, " from %s", term.Clean(v.Why.Source))
		}
		fmt.Fprintf(&b, ", %s] %s\n", dash(v.Channel), strings.TrimPrefix(o.applied(v), "yes"))
	}
	for _, c := range e.Changed {
		fmt.Fprintf(&b, "    others: %s\n", term.Clean(c))
	}
	for _, p := range e.Problems {
		if p.Warning {
			fmt.Fprintf(&b, "    warning: %s\n", term.Clean(p.String()))
			continue
		}
		what := "problem: "
		switch {
		case p.Unserved:
			what = "unserved: "
		case p.Refused:
			what = "refused: "
		}
		fmt.Fprintf(&b, "    %s\n", o.alarm(what+term.Clean(p.String())))
	}
	if e.Again {
		fmt.Fprintln(&b, "    decided before, and recognised by its record")
	}
	if e.Rejected != "" {
		fmt.Fprintf(&b, "    %s\n", o.alarm("REJECTED: "+term.Clean(e.Rejected)))
	}
	return send(w, &b)
}

// alarm marks a fault if the output has colour.
func (o Options) alarm(s string) string { return term.Ink{On: o.Color}.Paint(term.BoldRed, s) }

func table(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

// flush cannot fail: tables are written into memory.
func flush(t *tabwriter.Writer) { _ = t.Flush() }

// rows writes a table below an empty line. It writes nothing for an empty list.
func rows[T any](w io.Writer, head string, list []T, row func(T) []string) {
	if len(list) > 0 {
		fmt.Fprintln(w)
	}
	columns(w, head, list, row)
}

// columns writes a table. It writes nothing for an empty list.
func columns[T any](w io.Writer, head string, list []T, row func(T) []string) {
	if len(list) == 0 {
		return
	}
	t := table(w)
	fmt.Fprintln(t, head)
	for _, item := range list {
		fmt.Fprintln(t, strings.Join(row(item), "\t"))
	}
	flush(t)
}

func send(w io.Writer, b *bytes.Buffer) error {
	var out bytes.Buffer
	for line := range strings.Lines(b.String()) {
		out.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	if _, err := w.Write(out.Bytes()); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

func lines(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, "\n")
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return term.Clean(s)
}

func age(d time.Duration) string {
	if d < time.Minute {
		return d.Round(time.Second).String()
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}
