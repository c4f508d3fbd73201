package nri

import (
	"github.com/containerd/nri/pkg/api"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Short names for the types in the tables below.
type (
	nriHooks     = api.Hooks
	ourHooks     = lifecycle.OCIHooks
	nriDevice    = api.LinuxDevice
	ourDevice    = lifecycle.Device
	nriScheduler = api.LinuxScheduler
	ourScheduler = lifecycle.Scheduler
)

var mountTable = conversionTable[api.Mount, lifecycle.Mount]{
	{"destination", "Destination", "0.2", func(p *api.Mount, l *lifecycle.Mount) { l.Destination = p.Destination }, nil, ""},
	{"type", "Type", "0.2", func(p *api.Mount, l *lifecycle.Mount) { l.Type = p.Type }, nil, ""},
	{"source", "Source", "0.2", func(p *api.Mount, l *lifecycle.Mount) { l.Source = p.Source }, nil, ""},
	{"options[]", "Options[]", "0.2", func(p *api.Mount, l *lifecycle.Mount) { l.Options = p.Options }, nil, ""},
}

var hookTable = conversionTable[api.Hook, lifecycle.OCIHook]{
	{"path", "Path", "0.2", func(p *api.Hook, l *lifecycle.OCIHook) { l.Path = p.Path }, nil, ""},
	{"args[]", "Args[]", "0.2", func(p *api.Hook, l *lifecycle.OCIHook) { l.Args = p.Args }, nil, ""},
	{"env[]", "Env[]", "0.2", func(p *api.Hook, l *lifecycle.OCIHook) { l.Env = p.Env }, nil, ""},
	{"timeout", "Timeout", "0.2", func(p *api.Hook, l *lifecycle.OCIHook) { l.Timeout = p.Timeout.GetValue() }, nil, "a missing timeout becomes 0"},
}

var hooksTable = conversionTable[nriHooks, ourHooks]{
	{"prestart[]", "Prestart[]", "0.2", func(p *nriHooks, l *ourHooks) { l.Prestart = convertList(&hookTable, p.Prestart) }, &hookTable, ""},
	{"create_runtime[]", "CreateRuntime[]", "0.2", func(p *nriHooks, l *ourHooks) { l.CreateRuntime = convertList(&hookTable, p.CreateRuntime) }, &hookTable, ""},
	{"create_container[]", "CreateContainer[]", "0.2", func(p *nriHooks, l *ourHooks) { l.CreateContainer = convertList(&hookTable, p.CreateContainer) }, &hookTable, ""},
	{"start_container[]", "StartContainer[]", "0.2", func(p *nriHooks, l *ourHooks) { l.StartContainer = convertList(&hookTable, p.StartContainer) }, &hookTable, ""},
	{"poststart[]", "Poststart[]", "0.2", func(p *nriHooks, l *ourHooks) { l.Poststart = convertList(&hookTable, p.Poststart) }, &hookTable, ""},
	{"poststop[]", "Poststop[]", "0.2", func(p *nriHooks, l *ourHooks) { l.Poststop = convertList(&hookTable, p.Poststop) }, &hookTable, ""},
}

var deviceTable = conversionTable[nriDevice, ourDevice]{
	{"path", "Path", "0.2", func(p *nriDevice, l *ourDevice) { l.Path = p.Path }, nil, ""},
	{"type", "Type", "0.2", func(p *nriDevice, l *ourDevice) { l.Type = p.Type }, nil, ""},
	{"major", "Major", "0.2", func(p *nriDevice, l *ourDevice) { l.Major = p.Major }, nil, ""},
	{"minor", "Minor", "0.2", func(p *nriDevice, l *ourDevice) { l.Minor = p.Minor }, nil, ""},
	{"file_mode", "FileMode", "0.2", func(p *nriDevice, l *ourDevice) { l.FileMode = toOpt(p.FileMode) }, nil, ""},
	{"uid", "UID", "0.2", func(p *nriDevice, l *ourDevice) { l.UID = toOpt(p.Uid) }, nil, ""},
	{"gid", "GID", "0.2", func(p *nriDevice, l *ourDevice) { l.GID = toOpt(p.Gid) }, nil, ""},
}

var ioPriorityTable = conversionTable[api.LinuxIOPriority, lifecycle.IOPriority]{
	{"class", "Class", "0.10", func(p *api.LinuxIOPriority, l *lifecycle.IOPriority) { l.Class = p.Class.String() }, nil, "the name of the enum value"},
	{"priority", "Priority", "0.10", func(p *api.LinuxIOPriority, l *lifecycle.IOPriority) { l.Priority = p.Priority }, nil, ""},
}

var profileTable = conversionTable[api.SecurityProfile, lifecycle.SecurityProfile]{
	{"profile_type", "Type", "0.10", func(p *api.SecurityProfile, l *lifecycle.SecurityProfile) { l.Type = p.ProfileType.String() }, nil, "the name of the enum value"},
	{"localhost_ref", "Localhost", "0.10", func(p *api.SecurityProfile, l *lifecycle.SecurityProfile) { l.Localhost = p.LocalhostRef }, nil, ""},
}

// seccompNotConverted is the note in the docs for the fields of a seccomp filter that the attachment does not convert.
const seccompNotConverted = "not converted: policies never change a seccomp filter, so they get only a summary of it"

var seccompTable = conversionTable[api.LinuxSeccomp, lifecycle.SeccompPolicy]{
	{"default_action", "DefaultAction", "0.10", func(p *api.LinuxSeccomp, l *lifecycle.SeccompPolicy) { l.DefaultAction = p.DefaultAction }, nil, ""},
	{"default_errno", "", "0.10", nil, nil, seccompNotConverted},
	{"architectures[]", "Architectures[]", "0.10", func(p *api.LinuxSeccomp, l *lifecycle.SeccompPolicy) { l.Architectures = p.Architectures }, nil, ""},
	{"flags[]", "", "0.10", nil, nil, seccompNotConverted},
	{"listener_path", "", "0.10", nil, nil, seccompNotConverted},
	{"listener_metadata", "", "0.10", nil, nil, seccompNotConverted},
	{"syscalls[]", "Syscalls", "0.10", func(p *api.LinuxSeccomp, l *lifecycle.SeccompPolicy) { l.Syscalls = len(p.Syscalls) }, nil, "the number of rules"},
}

var schedulerTable = conversionTable[nriScheduler, ourScheduler]{
	{"policy", "Policy", "0.11", func(p *nriScheduler, l *ourScheduler) { l.Policy = p.Policy.String() }, nil, "the name of the enum value"},
	{"nice", "Nice", "0.11", func(p *nriScheduler, l *ourScheduler) { l.Nice = p.Nice }, nil, ""},
	{"priority", "Priority", "0.11", func(p *nriScheduler, l *ourScheduler) { l.Priority = p.Priority }, nil, ""},
	{"flags[]", "Flags[]", "0.11", func(p *nriScheduler, l *ourScheduler) {
		l.Flags = convertStrings(p.Flags, api.LinuxSchedulerFlag.String)
	}, nil, "the names of the enum values"},
	{"runtime", "Runtime", "0.11", func(p *nriScheduler, l *ourScheduler) { l.Runtime = p.Runtime }, nil, ""},
	{"deadline", "Deadline", "0.11", func(p *nriScheduler, l *ourScheduler) { l.Deadline = p.Deadline }, nil, ""},
	{"period", "Period", "0.11", func(p *nriScheduler, l *ourScheduler) { l.Period = p.Period }, nil, ""},
}

var rdtTable = conversionTable[api.LinuxRdt, lifecycle.RDT]{
	{"clos_id", "ClosID", "0.11", func(p *api.LinuxRdt, l *lifecycle.RDT) { l.ClosID = toOpt(p.ClosId) }, nil, ""},
	{"schemata", "Schemata[]", "0.11", func(p *api.LinuxRdt, l *lifecycle.RDT) { l.Schemata = p.Schemata.GetValue() }, nil, "a missing list and an empty list have the same meaning"},
	{"enable_monitoring", "Monitoring", "0.11", func(p *api.LinuxRdt, l *lifecycle.RDT) { l.Monitoring = toOpt(p.EnableMonitoring) }, nil, ""},
	{"remove", "", "0.11", nil, nil, "not converted: runtimes never send this marker, which is only for adjustments"},
}

var rlimitTable = conversionTable[api.POSIXRlimit, lifecycle.Rlimit]{
	{"type", "Type", "0.4", func(p *api.POSIXRlimit, l *lifecycle.Rlimit) { l.Type = p.Type }, nil, ""},
	{"hard", "Hard", "0.4", func(p *api.POSIXRlimit, l *lifecycle.Rlimit) { l.Hard = p.Hard }, nil, ""},
	{"soft", "Soft", "0.4", func(p *api.POSIXRlimit, l *lifecycle.Rlimit) { l.Soft = p.Soft }, nil, ""},
}

var userTable = conversionTable[api.User, lifecycle.User]{
	{"uid", "UID", "0.11", func(p *api.User, l *lifecycle.User) { l.UID = p.Uid }, nil, ""},
	{"gid", "GID", "0.11", func(p *api.User, l *lifecycle.User) { l.GID = p.Gid }, nil, ""},
	{"additional_gids[]", "Additional[]", "0.11", func(p *api.User, l *lifecycle.User) { l.Additional = p.AdditionalGids }, nil, ""},
}

var imageTable = conversionTable[api.Image, lifecycle.Image]{
	{"name", "Name", "0.12.2", func(p *api.Image, l *lifecycle.Image) { l.Name = p.Name }, nil, ""},
	{"digest", "Digest", "0.12.2", func(p *api.Image, l *lifecycle.Image) { l.Digest = p.Digest }, nil, ""},
	{"config_digest", "ConfigDigest", "0.12.2", func(p *api.Image, l *lifecycle.Image) { l.ConfigDigest = p.ConfigDigest }, nil, ""},
}
