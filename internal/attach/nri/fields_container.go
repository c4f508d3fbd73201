package nri

import (
	"github.com/containerd/nri/pkg/api"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Short names for the types in the tables below.
type (
	nriContainer      = api.Container
	nriLinuxContainer = api.LinuxContainer
	container         = lifecycle.Container
)

var linuxContainerTable = conversionTable[nriLinuxContainer, container]{
	{"namespaces[]", "Namespaces[]", "0.2", func(p *nriLinuxContainer, l *container) { l.Namespaces = convertList(&namespaceTable, p.Namespaces) }, &namespaceTable, ""},
	{"devices[]", "Devices[]", "0.2", func(p *nriLinuxContainer, l *container) { l.Devices = convertList(&deviceTable, p.Devices) }, &deviceTable, ""},
	{"resources", "Resources", "0.2", func(p *nriLinuxContainer, l *container) { resourcesTable.convert(p.Resources, &l.Resources) }, &resourcesTable, ""},
	{"oom_score_adj", "OOMScoreAdj", "0.7", func(p *nriLinuxContainer, l *container) { l.OOMScoreAdj = toOpt(p.OomScoreAdj) }, nil, ""},
	{"cgroups_path", "CgroupsPath", "0.2", func(p *nriLinuxContainer, l *container) { l.CgroupsPath = p.CgroupsPath }, nil, ""},
	{"io_priority", "IOPriority", "0.10", func(p *nriLinuxContainer, l *container) { l.IOPriority = convertOne(&ioPriorityTable, p.IoPriority) }, &ioPriorityTable, ""},
	{"seccomp_profile", "Seccomp", "0.10", func(p *nriLinuxContainer, l *container) { l.Seccomp = convertOne(&profileTable, p.SeccompProfile) }, &profileTable, ""},
	{"seccomp_policy", "SeccompRules", "0.10", func(p *nriLinuxContainer, l *container) { l.SeccompRules = convertOne(&seccompTable, p.SeccompPolicy) }, &seccompTable, ""},
	{"sysctl{}", "Sysctl{}", "0.11", func(p *nriLinuxContainer, l *container) { l.Sysctl = p.Sysctl }, nil, ""},
	{"net_devices{}", "NetDevices{}", "0.11", func(p *nriLinuxContainer, l *container) { l.NetDevices = convertNetDevices(p.NetDevices) }, nil, "the value is the interface's name in the container, and the key is its name on the host"},
	{"scheduler", "Scheduler", "0.11", func(p *nriLinuxContainer, l *container) { l.Scheduler = convertOne(&schedulerTable, p.Scheduler) }, &schedulerTable, ""},
	{"rdt", "RDT", "0.11", func(p *nriLinuxContainer, l *container) { l.RDT = convertOne(&rdtTable, p.Rdt) }, &rdtTable, ""},
}

var containerTable = conversionTable[nriContainer, container]{
	{"id", "ID", "0.2", func(p *nriContainer, l *container) { l.ID = p.Id }, nil, "empty at CreateContainer in iSulad"},
	{"pod_sandbox_id", "PodID", "0.2", func(p *nriContainer, l *container) { l.PodID = p.PodSandboxId }, nil, ""},
	{"name", "Name", "0.2", func(p *nriContainer, l *container) { l.Name = p.Name }, nil, "empty at CreateContainer in CRI-O up to 1.36"},
	{
		"state", "State", "0.2", func(p *nriContainer, l *container) { l.State = lifecycle.State(p.State) }, nil,
		"containerd reports an exited container as unknown",
	},
	{"labels{}", "Labels{}", "0.2", func(p *nriContainer, l *container) { l.Labels = p.Labels }, nil, "containerd adds the image's labels"},
	{"annotations{}", "Annotations{}", "0.2", func(p *nriContainer, l *container) { l.Annotations = p.Annotations }, nil, ""},
	{"args[]", "Args[]", "0.2", func(p *nriContainer, l *container) { l.Args = p.Args }, nil, ""},
	{"env[]", "Env[]", "0.2", func(p *nriContainer, l *container) { l.Env = p.Env }, nil, ""},
	{"mounts[]", "Mounts[]", "0.2", func(p *nriContainer, l *container) { l.Mounts = convertList(&mountTable, p.Mounts) }, &mountTable, ""},
	{"hooks", "Hooks", "0.2", func(p *nriContainer, l *container) { l.Hooks = convertOne(&hooksTable, p.Hooks) }, &hooksTable, ""},
	{"linux", "", "0.2", func(p *nriContainer, l *container) { linuxContainerTable.convert(p.Linux, l) }, &linuxContainerTable, ""},
	{"pid", "PID", "0.2", func(p *nriContainer, l *container) { l.PID = p.Pid }, nil, ""},
	{"rlimits[]", "Rlimits[]", "0.4", func(p *nriContainer, l *container) { l.Rlimits = convertList(&rlimitTable, p.Rlimits) }, &rlimitTable, "CRI-O does not fill it"},
	{"created_at", "CreatedAt", "0.10", func(p *nriContainer, l *container) { l.CreatedAt = p.CreatedAt }, nil, ""},
	{"started_at", "StartedAt", "0.10", func(p *nriContainer, l *container) { l.StartedAt = p.StartedAt }, nil, ""},
	{"finished_at", "FinishedAt", "0.10", func(p *nriContainer, l *container) { l.FinishedAt = p.FinishedAt }, nil, ""},
	{"exit_code", "ExitCode", "0.10", func(p *nriContainer, l *container) { l.ExitCode = p.ExitCode }, nil, ""},
	{"status_reason", "Reason", "0.10", func(p *nriContainer, l *container) { l.Reason = p.StatusReason }, nil, "containerd does not send it"},
	{"status_message", "Message", "0.10", func(p *nriContainer, l *container) { l.Message = p.StatusMessage }, nil, "containerd does not send it"},
	{"CDI_devices[]", "CDIDevices[]", "0.10", func(p *nriContainer, l *container) {
		l.CDIDevices = convertStrings(p.CDIDevices, (*api.CDIDevice).GetName)
	}, nil, "CRI-O does not fill it"},
	{"user", "User", "0.11", func(p *nriContainer, l *container) { l.User = convertOne(&userTable, p.User) }, &userTable, "CRI-O does not fill it"},
	{"image", "Image", "0.12.2", func(p *nriContainer, l *container) { l.Image = convertOne(&imageTable, p.Image) }, &imageTable, ""},
}

// convertContainer converts a container of NRI. It converts nil to nil.
func convertContainer(p *api.Container) *lifecycle.Container { return convertOne(&containerTable, p) }

// convertNetDevices returns the name of each network interface in the container, by the interface's name on the host.
func convertNetDevices(in map[string]*api.LinuxNetDevice) map[string]string {
	if len(in) == 0 {
		return nil
	}
	out := make(map[string]string, len(in))
	for host, d := range in {
		out[host] = d.GetName()
	}
	return out
}
