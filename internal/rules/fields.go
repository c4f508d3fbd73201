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

// placementFields are the fields that rules cannot set, because the agent decides them when it places containers. Each
// text has the reason, and the keys of a rule that change the placement instead.
var placementFields = map[lifecycle.Field]string{
	lifecycle.CPUSetCPUs: "the agent decides for the whole node which container owns which CPUs; set class, pool or numa",
	lifecycle.CPUSetMems: "the agent chooses memory nodes together with CPUs; set numa",
}

// Field is a field that rules may set.
type Field struct {
	lifecycle.FieldInfo

	Key   string // describes the key of an entry; "" if the field has only one value and no entries
	Range string // describes the range of a number; "" if any number is valid
}

// SettableFields lists the fields that rules may set, in the order of lifecycle.Fields.
func SettableFields() []Field {
	var all []Field
	for _, f := range lifecycle.Fields() {
		if _, no := placementFields[f.Field]; no {
			continue
		}
		s := Field{FieldInfo: f, Key: keyRules[f.Field].description}
		if s.Key == "" && f.Compose == lifecycle.SetOncePerKey {
			s.Key = "the name of the entry"
		}
		if b, has := numberRanges[f.Field]; has {
			s.Range = b.String()
		}
		all = append(all, s)
	}
	return all
}

// PlacementFields lists the fields that rules do not set, with the reasons.
func PlacementFields() [][2]string {
	var all [][2]string
	for _, f := range lifecycle.Fields() {
		if why, no := placementFields[f.Field]; no {
			all = append(all, [2]string{f.Name, why})
		}
	}
	return all
}

// FieldNames returns the names of the fields that rules may set.
func FieldNames() []string {
	var names []string
	for _, f := range SettableFields() {
		names = append(names, f.Name)
	}
	return names
}

// numberRange is the range of the valid numbers of a field.
type numberRange struct {
	low, high int64
	unlimited bool // -1 is valid, too, and means no limit
}

// String returns the range for users.
func (b numberRange) String() string {
	text := fmt.Sprintf("%d to %d", b.low, b.high)
	if b.high == math.MaxInt64 {
		text = fmt.Sprintf("at least %d", b.low)
	}
	if b.unlimited {
		text += ", or -1 for no limit"
	}
	return text
}

// numberRanges are the ranges that the kernel and the OCI runtimes accept.
var numberRanges = map[lifecycle.Field]numberRange{
	lifecycle.CPUShares:   {2, 262144, false},
	lifecycle.CPUQuota:    {1000, math.MaxInt64, true},
	lifecycle.CPUPeriod:   {1000, 1000000, false},
	lifecycle.MemoryLimit: {1 << 20, math.MaxInt64, true},
	lifecycle.OOMScoreAdj: {-1000, 1000, false},
	lifecycle.Hugepages:   {0, math.MaxInt64, true},
	lifecycle.IOLimit:     {1, math.MaxInt64, true},
}

// checkNumber returns what is wrong with the number of a field, or "".
func checkNumber(f lifecycle.Field, n int64) string {
	b, has := numberRanges[f]
	if !has || n >= b.low && n <= b.high || b.unlimited && n == -1 {
		return ""
	}
	return fmt.Sprintf("is %d, want %s", n, b)
}

// keyRule describes the valid keys of a field.
type keyRule struct {
	description string // for users
	pattern     *regexp.Regexp
	// check makes a check in addition to the pattern, and returns what is wrong with the key, or "". nil means no check.
	check func(key string) string
}

// keyRules has the rules for the keys of fields with entries. A field with entries that is not in this map accepts any
// key.
var keyRules = map[lifecycle.Field]keyRule{
	lifecycle.Env:        {"the name of the variable", regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,255}$`), nil},
	lifecycle.MountPoint: {"the place in the container, an absolute path", regexp.MustCompile(`^/.`), checkPath},
	lifecycle.DeviceNode: {"the path of a device of the node, below /dev", regexp.MustCompile(`^/dev/.`), checkPath},
	lifecycle.Annotation: {
		"the key of the annotation", regexp.MustCompile(`^([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`),
		func(key string) string {
			if strings.HasPrefix(key, "trimtab.io/") {
				return "is reserved for the agent: want a key that does not begin with trimtab.io/"
			}
			return ""
		},
	},
	lifecycle.Unified:      {"the name of the cgroup v2 file", regexp.MustCompile(`^[a-z]+(\.[a-z0-9_]+)+$`), checkUnifiedKey},
	lifecycle.Hugepages:    {"the size of the pages, such as 2MB", regexp.MustCompile(`^[1-9][0-9]{0,4}(KB|MB|GB)$`), nil},
	lifecycle.IOLimit:      {"disk and direction, such as 8:0 rbps", regexp.MustCompile(`^[0-9]+:[0-9]+ (rbps|wbps|riops|wiops)$`), nil},
	lifecycle.ProcessLimit: {"the name of the limit, such as RLIMIT_NOFILE", regexp.MustCompile(`^RLIMIT_(AS|CORE|CPU|DATA|FSIZE|LOCKS|MEMLOCK|MSGQUEUE|NICE|NOFILE|NPROC|RSS|RTPRIO|RTTIME|SIGPENDING|STACK)$`), nil},
	lifecycle.SysctlEntry: {
		"a kernel parameter of a container's namespaces, such as net.core.somaxconn", regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$`),
		func(name string) string {
			if !namespacedSysctlPattern.MatchString(name) {
				return "is not a parameter of a container's own namespaces: want one such as net.core.somaxconn"
			}
			return ""
		},
	},
	lifecycle.NetDevice: {"the name of a network interface of the node", interfacePattern, nil},
	lifecycle.InjectedHook: {
		"the stage and a name, such as createRuntime audit",
		regexp.MustCompile(`^(prestart|createRuntime|createContainer|startContainer|poststart|poststop) [A-Za-z0-9][A-Za-z0-9._-]{0,127}$`), nil,
	},
	lifecycle.RDTSchemata: {"the resctrl group, a name that begins with trimtab-", groupPattern, nil},
	lifecycle.IntelRDT:    {"closid, schemata or monitoring", regexp.MustCompile(`^(closid|schemata|monitoring)$`), nil},
	lifecycle.CDIDevice:   {"the device, in the form vendor/class=name", regexp.MustCompile(`^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+=[A-Za-z0-9._:-]+$`), nil},
}

// namespacedSysctlPattern matches the kernel parameters that each container can have for itself (runc 1.2,
// libcontainer/configs/validate, sysctl).
var namespacedSysctlPattern = regexp.MustCompile(`^(net\.[a-z].*|fs\.mqueue\..+|kernel\.(msgmax|msgmnb|msgmni|sem|shmall|shmmax|shmmni|shm_rmid_forced|domainname|hostname))$`)

// textForms are the fields whose texts have a fixed form.
var textForms = map[lifecycle.Field]struct {
	form  string // describes the form for users
	valid func(key, text string) bool
}{
	lifecycle.ProcessLimit: {"the soft and the hard limit, such as 1024:4096", func(key, text string) bool {
		_, ok := lifecycle.ParseRlimit(key, text)
		return ok
	}},
	lifecycle.ProcessIO: {"class and level, such as IOPRIO_CLASS_BE 4", func(_, text string) bool {
		p, ok := lifecycle.ParseIOPriority(text)
		return ok && slices.Contains([]string{"IOPRIO_CLASS_RT", "IOPRIO_CLASS_BE", "IOPRIO_CLASS_IDLE"}, p.Class) && p.Priority >= 0 && p.Priority <= 7
	}},
	lifecycle.ProcessSched: {"the policy and its parameters, such as SCHED_BATCH nice=5", func(_, text string) bool {
		s, ok := lifecycle.ParseScheduler(text)
		return ok && slices.Contains([]string{"SCHED_OTHER", "SCHED_FIFO", "SCHED_RR", "SCHED_BATCH", "SCHED_ISO", "SCHED_IDLE", "SCHED_DEADLINE"}, s.Policy)
	}},
	lifecycle.MemPolicy: {"mode, nodes and flags, such as MPOL_BIND nodes=0-1", func(_, text string) bool {
		m, ok := lifecycle.ParseMemoryPolicy(text)
		_, err := topology.ParseList(m.Nodes)
		return ok && err == nil && strings.HasPrefix(m.Mode, "MPOL_")
	}},
	lifecycle.InjectedHook: {`the hook in the JSON of the OCI spec, such as {"path":"/usr/bin/audit"}`, func(key, text string) bool {
		_, _, ok := lifecycle.ParseOCIHook(key, text)
		return ok
	}},
	lifecycle.CgroupMount: {"rw", func(_, text string) bool { return text == "rw" }},
	lifecycle.IntelRDT: {"for closid the name of a class, for schemata lines such as L3:0=f;1=f with commas between them, for monitoring true", func(key, text string) bool {
		switch key {
		case "closid":
			return intent.IsClosID(text)
		case "schemata":
			return !slices.ContainsFunc(strings.Split(text, ","), func(line string) bool { return !intent.IsSchemaLine(line) })
		}
		return text == "true"
	}},
	lifecycle.RDTSchemata: {"shares of caches and memory bandwidth in percent, such as L3 0-30, MB 50", func(_, text string) bool { return !slices.ContainsFunc(strings.Split(text, ", "), isInvalidShare) }},
	lifecycle.RDTGroup:    {"a resctrl group, a name that begins with trimtab-", func(_, text string) bool { return groupPattern.MatchString(text) }},
	lifecycle.RDTMonitor:  {"a monitoring group in the form trimtab-GROUP/trimtab-NAME, or /trimtab-NAME below the root group", func(_, text string) bool { return monitorPattern.MatchString(text) }},
	lifecycle.CoreSched:   {"the name of a core scheduling group", func(_, text string) bool { return cookiePattern.MatchString(text) }},
	lifecycle.NetDevice:   {"the interface's name in the container", func(_, text string) bool { return interfacePattern.MatchString(text) }},
}

// groupPattern and monitorPattern match the names of Trimtab's resctrl groups, as package resctrl accepts them.
// cookiePattern matches the names of groups that share a core scheduling cookie.
var (
	groupPattern   = regexp.MustCompile(`^trimtab-[A-Za-z0-9-]{1,72}$`)
	monitorPattern = regexp.MustCompile(`^(trimtab-[A-Za-z0-9-]{1,72})?/trimtab-[A-Za-z0-9-]{1,72}$`)
	cookiePattern  = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$`)
)

// sharePattern matches one share of a resctrl group in percent: a range of a cache (L3 0-30), or memory bandwidth
// (MB 50).
var sharePattern = regexp.MustCompile(`^(?:L3(?:@[0-9]{1,5})? ([0-9]{1,3})-([0-9]{1,3})|MB(?:@[0-9]{1,5})? ([0-9]{1,3}))$`)

// isInvalidShare reports whether a text is not a valid share of a resctrl group. Package resctrl refuses the same texts.
func isInvalidShare(text string) bool {
	found := sharePattern.FindStringSubmatch(text)
	if found == nil {
		return true
	}
	low, _ := strconv.Atoi(found[1]) // "" is 0
	high, _ := strconv.Atoi(found[2] + found[3])
	return low >= high || high > 100
}

// interfacePattern matches the names of network interfaces.
var interfacePattern = regexp.MustCompile(`^[^/:\s]{1,15}$`)

// checkText returns what is wrong with the text of a field, or "".
func checkText(f lifecycle.Field, key, text string) string {
	if form, has := textForms[f]; has && !form.valid(key, text) {
		return fmt.Sprintf("is %q, want %s", shorten(text), form.form)
	}
	return ""
}

// checkKey returns what is wrong with the key of a field, or "".
func checkKey(f lifecycle.FieldInfo, key string) string {
	rule, known := keyRules[f.Field]
	switch {
	case f.Compose != lifecycle.SetOncePerKey && key != "":
		return fmt.Sprintf("is %q, but %s has no entries: leave the key out", shorten(key), f.Name)
	case f.Compose != lifecycle.SetOncePerKey:
		return ""
	case key == "" && known:
		return "is missing, want " + rule.description
	case key == "":
		return "is missing, want an entry of " + f.Name
	case !known:
		return ""
	case !rule.pattern.MatchString(key):
		return fmt.Sprintf("is %q, want %s", shorten(key), rule.description)
	case rule.check != nil:
		if wrong := rule.check(key); wrong != "" {
			return fmt.Sprintf("is %q, which %s", shorten(key), wrong)
		}
	}
	return ""
}

// checkPath returns what is wrong with the path of a mount or device, or "".
func checkPath(p string) string {
	if path.Clean(p) != p {
		return "is not the shortest form of the path: want " + path.Clean(p)
	}
	return ""
}

// fieldOfFile has files of cgroup v2 that rules must not set with the field unified. The value is the field with which
// a rule must set the file.
var fieldOfFile = map[string]lifecycle.Field{
	"cpu.max": lifecycle.CPUQuota, "cpu.weight": lifecycle.CPUShares, "cpu.weight.nice": lifecycle.CPUShares,
	"memory.max": lifecycle.MemoryLimit, "io.max": lifecycle.IOLimit,
}

// checkUnifiedKey returns why a rule cannot set a file of cgroup v2 with the field unified, or "".
func checkUnifiedKey(file string) string {
	if f, has := fieldOfFile[file]; has {
		return "the field " + f.String() + " sets: set that field"
	}
	switch controller, _, _ := strings.Cut(file, "."); controller {
	case "cgroup":
		return "is not a setting of a container"
	case "cpuset":
		return "the agent decides for the whole node: set class, pool or numa"
	case "hugetlb":
		return "the field " + lifecycle.Hugepages.String() + " sets: set that field"
	}
	return ""
}

// KernelFeatures maps each field that needs a kernel feature to the name of the feature. hook.Info.KernelFeatures uses
// the same names.
func KernelFeatures() map[lifecycle.Field]string {
	return map[lifecycle.Field]string{
		lifecycle.RDTSchemata: "resctrl", lifecycle.RDTGroup: "resctrl", lifecycle.RDTMonitor: "resctrl", lifecycle.CoreSched: "coreSched",
	}
}

// podFields are the fields that a rule can set with the scope pod.
var podFields = []lifecycle.Field{
	lifecycle.CPUShares, lifecycle.CPUQuota, lifecycle.CPUPeriod, lifecycle.MemoryLimit, lifecycle.Unified, lifecycle.Hugepages, lifecycle.IOLimit,
	lifecycle.RDTSchemata,
}

// podOnlyFields are the fields that a rule can set only with the scope pod.
var podOnlyFields = []lifecycle.Field{lifecycle.RDTSchemata}

// mountOptions are the options that a rule may set for a mount.
var mountOptions = []string{
	"bind", "rbind", "ro", "rw", "suid", "nosuid", "dev", "nodev", "exec", "noexec", "relatime", "noatime", "nodiratime",
	"private", "rprivate", "slave", "rslave", "shared", "rshared", "unbindable", "runbindable",
}

// MountOptions returns the options that a rule may set for a mount.
func MountOptions() []string { return slices.Clone(mountOptions) }

// defaultMountOptions are the options of a mount if its rule sets no options. The mount is then read-only, and the
// container cannot use device files and set-user-ID programs in it.
var defaultMountOptions = []string{"bind", "ro", "nosuid", "nodev"}

// shorten shortens a user's text for messages.
func shorten(s string) string {
	const most = 60
	if len(s) > most {
		return strings.ToValidUTF8(s[:most-3], "") + "..."
	}
	return s
}
