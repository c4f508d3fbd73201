package rules

import (
	"fmt"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// elsewhere are the fields that no rule and no hook decides: the hook cpuset only passes on what placement chose. Each
// has the way in which a rule reaches the same end. Rules set all other fields as hooks do.
var elsewhere = map[lifecycle.Field]string{
	lifecycle.CPUSetCPUs: "the agent decides for the whole node which container owns which CPUs; set class, pool or numa",
	lifecycle.CPUSetMems: "the agent chooses memory nodes together with CPUs; set numa",
}

// Field is a field that rules may set.
type Field struct {
	lifecycle.FieldInfo

	Key   string // what its key means; "" if it has no key
	Range string // range of a number, for users; "" for any number
}

// Settable lists the fields that rules may set, in the order of the table of fields.
func Settable() []Field {
	var all []Field
	for _, f := range lifecycle.Fields() {
		if _, no := elsewhere[f.Field]; no {
			continue
		}
		s := Field{FieldInfo: f, Key: keys[f.Field].means}
		if s.Key == "" && f.Compose == lifecycle.Keyed {
			s.Key = "its entry"
		}
		if b, has := bounds[f.Field]; has {
			s.Range = b.String()
		}
		all = append(all, s)
	}
	return all
}

// Elsewhere lists the fields that rules do not set, with the reasons.
func Elsewhere() [][2]string {
	var all [][2]string
	for _, f := range lifecycle.Fields() {
		if why, no := elsewhere[f.Field]; no {
			all = append(all, [2]string{f.Name, why})
		}
	}
	return all
}

// FieldNames are the names of the fields that rules may set.
func FieldNames() []string {
	var names []string
	for _, f := range Settable() {
		names = append(names, f.Name)
	}
	return names
}

// bound is the range of a number; unlimited allows -1 as well.
type bound struct {
	low, high int64
	unlimited bool
}

// String returns the range for users.
func (b bound) String() string {
	text := fmt.Sprintf("%d to %d", b.low, b.high)
	if b.high == math.MaxInt64 {
		text = fmt.Sprintf("at least %d", b.low)
	}
	if b.unlimited {
		text += ", or -1 for no limit"
	}
	return text
}

// bounds are the ranges that the kernel and the OCI runtimes accept.
var bounds = map[lifecycle.Field]bound{
	lifecycle.CPUShares:   {2, 262144, false},
	lifecycle.CPUQuota:    {1000, math.MaxInt64, true},
	lifecycle.CPUPeriod:   {1000, 1000000, false},
	lifecycle.MemoryLimit: {1 << 20, math.MaxInt64, true},
	lifecycle.OOMScoreAdj: {-1000, 1000, false},
	lifecycle.Hugepages:   {0, math.MaxInt64, true},
	lifecycle.IOLimit:     {1, math.MaxInt64, true},
}

// wrongNumber returns what is wrong with a number of a field, or "".
func wrongNumber(f lifecycle.Field, n int64) string {
	b, has := bounds[f]
	if !has || n >= b.low && n <= b.high || b.unlimited && n == -1 {
		return ""
	}
	return fmt.Sprintf("is %d, want %s", n, b)
}

// keyRule says which keys are valid.
type keyRule struct {
	means   string
	pattern *regexp.Regexp
	wrong   func(string) string // a check in addition to the pattern; nil for none
}

// keys are the rules for keys that the table of fields does not have. A field with entries that is not in this map
// accepts any key.
var keys = map[lifecycle.Field]keyRule{
	lifecycle.Env:        {"the name of the variable", regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,255}$`), nil},
	lifecycle.MountPoint: {"the place in the container, an absolute path", regexp.MustCompile(`^/.`), uncleanPath},
	lifecycle.DeviceNode: {"the path of a device of the node, below /dev", regexp.MustCompile(`^/dev/.`), uncleanPath},
	lifecycle.Annotation: {
		"the key of the annotation", regexp.MustCompile(`^([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`),
		func(key string) string {
			if strings.HasPrefix(key, "trimtab.io/") {
				return "is an annotation of the agent's own"
			}
			return ""
		},
	},
	lifecycle.Unified:      {"the file of cgroup v2", regexp.MustCompile(`^[a-z]+(\.[a-z0-9_]+)+$`), unifiedOfAnother},
	lifecycle.Hugepages:    {"the size of the pages, such as 2MB", regexp.MustCompile(`^[1-9][0-9]{0,4}(KB|MB|GB)$`), nil},
	lifecycle.IOLimit:      {"disk and direction, such as 8:0 rbps", regexp.MustCompile(`^[0-9]+:[0-9]+ (rbps|wbps|riops|wiops)$`), nil},
	lifecycle.ProcessLimit: {"the limit, as RLIMIT_NOFILE", regexp.MustCompile(`^RLIMIT_(AS|CORE|CPU|DATA|FSIZE|LOCKS|MEMLOCK|MSGQUEUE|NICE|NOFILE|NPROC|RSS|RTPRIO|RTTIME|SIGPENDING|STACK)$`), nil},
	lifecycle.SysctlEntry: {
		"a kernel parameter of a container's namespaces, such as net.core.somaxconn", regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$`),
		func(name string) string {
			if !namespaced.MatchString(name) {
				return "belongs to no namespace of a container"
			}
			return ""
		},
	},
	lifecycle.NetDevice: {"the name of a network interface of the node", interfaceName, nil},
	lifecycle.InjectedHook: {
		"the stage and a name, such as createRuntime audit",
		regexp.MustCompile(`^(prestart|createRuntime|createContainer|startContainer|poststart|poststop) [A-Za-z0-9][A-Za-z0-9._-]{0,127}$`), nil,
	},
	lifecycle.RDTSchemata: {"the resctrl group, a name that begins with trimtab-", groupName, nil},
	lifecycle.IntelRDT:    {"closid, schemata or monitoring", regexp.MustCompile(`^(closid|schemata|monitoring)$`), nil},
	lifecycle.CDIDevice:   {"the device, as vendor/class=name", regexp.MustCompile(`^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+=[A-Za-z0-9._:-]+$`), nil},
}

// namespaced are the kernel parameters that each container can have for itself (runc 1.2,
// libcontainer/configs/validate, sysctl).
var namespaced = regexp.MustCompile(`^(net\.[a-z].*|fs\.mqueue\..+|kernel\.(msgmax|msgmnb|msgmni|sem|shmall|shmmax|shmmni|shm_rmid_forced|domainname|hostname))$`)

// texts are the fields whose texts have a fixed form, each with a description of that form for users.
var texts = map[lifecycle.Field]struct {
	form  string
	valid func(key, text string) bool
}{
	lifecycle.ProcessLimit: {"the soft and the hard limit, as 1024:4096", func(key, text string) bool {
		_, ok := lifecycle.ParseRlimit(key, text)
		return ok
	}},
	lifecycle.ProcessIO: {"class and level, such as IOPRIO_CLASS_BE 4", func(_, text string) bool {
		p, ok := lifecycle.ParseIOPriority(text)
		return ok && slices.Contains([]string{"IOPRIO_CLASS_RT", "IOPRIO_CLASS_BE", "IOPRIO_CLASS_IDLE"}, p.Class) && p.Priority >= 0 && p.Priority <= 7
	}},
	lifecycle.ProcessSched: {"policy and its numbers, as SCHED_BATCH nice=5", func(_, text string) bool {
		s, ok := lifecycle.ParseScheduler(text)
		return ok && slices.Contains([]string{"SCHED_OTHER", "SCHED_FIFO", "SCHED_RR", "SCHED_BATCH", "SCHED_ISO", "SCHED_IDLE", "SCHED_DEADLINE"}, s.Policy)
	}},
	lifecycle.MemPolicy: {"mode, nodes and flags, such as MPOL_BIND nodes=0-1", func(_, text string) bool {
		m, ok := lifecycle.ParseMemoryPolicy(text)
		_, err := topology.ParseList(m.Nodes)
		return ok && err == nil && strings.HasPrefix(m.Mode, "MPOL_")
	}},
	lifecycle.InjectedHook: {`the hook in the JSON of the OCI spec, as {"path":"/usr/bin/audit"}`, func(key, text string) bool {
		_, _, ok := lifecycle.ParseOCIHook(key, text)
		return ok
	}},
	lifecycle.CgroupMount: {"rw", func(_, text string) bool { return text == "rw" }},
	lifecycle.IntelRDT: {"a class's name, lines of schemata as L3:0=f;1=f with commas between, or true", func(key, text string) bool {
		switch key {
		case "closid":
			return intent.ClosID(text)
		case "schemata":
			return !slices.ContainsFunc(strings.Split(text, ","), func(line string) bool { return !intent.SchemaLine(line) })
		}
		return text == "true"
	}},
	lifecycle.RDTSchemata: {"shares of caches and memory bandwidth in percent, as L3 0-30, MB 50", func(_, text string) bool { return !slices.ContainsFunc(strings.Split(text, ", "), notShare) }},
	lifecycle.RDTGroup:    {"a resctrl group, a name that begins with trimtab-", func(_, text string) bool { return groupName.MatchString(text) }},
	lifecycle.RDTMonitor:  {"a group that measures, as trimtab-GROUP/trimtab-NAME, or /trimtab-NAME below the root group", func(_, text string) bool { return monitorName.MatchString(text) }},
	lifecycle.CoreSched:   {"the name of a group", func(_, text string) bool { return cookieName.MatchString(text) }},
	lifecycle.NetDevice:   {"the interface's name in the container", func(_, text string) bool { return interfaceName.MatchString(text) }},
}

// The names of resctrl groups of ours, as package resctrl accepts them, and of groups with one core scheduling cookie.
var (
	groupName   = regexp.MustCompile(`^trimtab-[A-Za-z0-9-]{1,72}$`)
	monitorName = regexp.MustCompile(`^(trimtab-[A-Za-z0-9-]{1,72})?/trimtab-[A-Za-z0-9-]{1,72}$`)
	cookieName  = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$`)
)

// sharePattern is one share of a resctrl group in percent: ways of a cache as a range, or bandwidth.
var sharePattern = regexp.MustCompile(`^(?:L3(?:@[0-9]{1,5})? ([0-9]{1,3})-([0-9]{1,3})|MB(?:@[0-9]{1,5})? ([0-9]{1,3}))$`)

// notShare reports whether a text is not a share of a resctrl group, as package resctrl reads it.
func notShare(text string) bool {
	found := sharePattern.FindStringSubmatch(text)
	if found == nil {
		return true
	}
	low, _ := strconv.Atoi(found[1]) // "" is 0
	high, _ := strconv.Atoi(found[2] + found[3])
	return low >= high || high > 100
}

var interfaceName = regexp.MustCompile(`^[^/:\s]{1,15}$`)

// wrongText returns what is wrong with the text of a field, or "".
func wrongText(f lifecycle.Field, key, text string) string {
	if form, has := texts[f]; has && !form.valid(key, text) {
		return fmt.Sprintf("is %q, want %s", printable(text), form.form)
	}
	return ""
}

// wrongKey returns what is wrong with the key of a field, or "".
func wrongKey(f lifecycle.FieldInfo, key string) string {
	rule, known := keys[f.Field]
	switch {
	case f.Compose != lifecycle.Keyed && key != "":
		return fmt.Sprintf("is %q, and %s has no entries; leave it out", printable(key), f.Name)
	case f.Compose != lifecycle.Keyed:
		return ""
	case key == "" && known:
		return "is missing, want " + rule.means
	case key == "":
		return "is missing, want an entry of " + f.Name
	case !known:
		return ""
	case !rule.pattern.MatchString(key):
		return fmt.Sprintf("is %q, want %s", printable(key), rule.means)
	case rule.wrong != nil:
		if wrong := rule.wrong(key); wrong != "" {
			return fmt.Sprintf("is %q, which %s", printable(key), wrong)
		}
	}
	return ""
}

func uncleanPath(p string) string {
	if path.Clean(p) != p {
		return "is no path in its short form, " + path.Clean(p)
	}
	return ""
}

// ownField has the files of cgroup v2 that another field sets.
var ownField = map[string]lifecycle.Field{
	"cpu.max": lifecycle.CPUQuota, "cpu.weight": lifecycle.CPUShares, "cpu.weight.nice": lifecycle.CPUShares,
	"memory.max": lifecycle.MemoryLimit, "io.max": lifecycle.IOLimit,
}

func unifiedOfAnother(file string) string {
	if f, has := ownField[file]; has {
		return "the field " + f.String() + " sets"
	}
	switch controller, _, _ := strings.Cut(file, "."); controller {
	case "cgroup":
		return "is no setting of a container"
	case "cpuset":
		return "is decided for the whole node; set class, pool or numa"
	case "hugetlb":
		return "the field " + lifecycle.Hugepages.String() + " sets"
	}
	return ""
}

// Features are the fields that need a feature of the kernel, by the names of Info.Kernel of hooks.
func Features() map[lifecycle.Field]string {
	return map[lifecycle.Field]string{
		lifecycle.RDTSchemata: "resctrl", lifecycle.RDTGroup: "resctrl", lifecycle.RDTMonitor: "resctrl", lifecycle.CoreSched: "coreSched",
	}
}

// onPods are the fields that also exist in a pod's own cgroup.
var onPods = []lifecycle.Field{
	lifecycle.CPUShares, lifecycle.CPUQuota, lifecycle.CPUPeriod, lifecycle.MemoryLimit, lifecycle.Unified, lifecycle.Hugepages, lifecycle.IOLimit,
	lifecycle.RDTSchemata,
}

// onlyPods are the fields that only pods have.
var onlyPods = []lifecycle.Field{lifecycle.RDTSchemata}

// mountOptions are the options that a rule may give a mount.
var mountOptions = []string{
	"bind", "rbind", "ro", "rw", "suid", "nosuid", "dev", "nodev", "exec", "noexec", "relatime", "noatime", "nodiratime",
	"private", "rprivate", "slave", "rslave", "shared", "rshared", "unbindable", "runbindable",
}

// MountOptions are the options that a mount may have.
func MountOptions() []string { return slices.Clone(mountOptions) }

// usualOptions are the options of a mount for which the rule has none: read-only, without devices and without more
// privileges.
var usualOptions = []string{"bind", "ro", "nosuid", "nodev"}

// printable shortens foreign text for messages.
func printable(s string) string {
	const most = 60
	if len(s) > most {
		return strings.ToValidUTF8(s[:most-3], "") + "..."
	}
	return s
}
