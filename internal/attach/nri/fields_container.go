package nri

import (
	"github.com/containerd/nri/pkg/api"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

type (
	pCtr      = api.Container
	pLinuxCtr = api.LinuxContainer
	lCtr      = lifecycle.Container
)

var linuxContainerTable = table[pLinuxCtr, lCtr]{
	{"namespaces[]", "Namespaces[]", "0.2", func(p *pLinuxCtr, l *lCtr) { l.Namespaces = list(&namespaceTable, p.Namespaces) }, &namespaceTable, ""},
	{"devices[]", "Devices[]", "0.2", func(p *pLinuxCtr, l *lCtr) { l.Devices = list(&deviceTable, p.Devices) }, &deviceTable, ""},
	{"resources", "Resources", "0.2", func(p *pLinuxCtr, l *lCtr) { resourcesTable.convert(p.Resources, &l.Resources) }, &resourcesTable, ""},
	{"oom_score_adj", "OOMScoreAdj", "0.7", func(p *pLinuxCtr, l *lCtr) { l.OOMScoreAdj = opt(p.OomScoreAdj) }, nil, ""},
	{"cgroups_path", "CgroupsPath", "0.2", func(p *pLinuxCtr, l *lCtr) { l.CgroupsPath = p.CgroupsPath }, nil, ""},
	{"io_priority", "IOPriority", "0.10", func(p *pLinuxCtr, l *lCtr) { l.IOPriority = one(&ioPriorityTable, p.IoPriority) }, &ioPriorityTable, ""},
	{"seccomp_profile", "Seccomp", "0.10", func(p *pLinuxCtr, l *lCtr) { l.Seccomp = one(&profileTable, p.SeccompProfile) }, &profileTable, ""},
	{"seccomp_policy", "SeccompRules", "0.10", func(p *pLinuxCtr, l *lCtr) { l.SeccompRules = one(&seccompTable, p.SeccompPolicy) }, &seccompTable, ""},
	{"sysctl{}", "Sysctl{}", "0.11", func(p *pLinuxCtr, l *lCtr) { l.Sysctl = p.Sysctl }, nil, ""},
	{"net_devices{}", "NetDevices{}", "0.11", func(p *pLinuxCtr, l *lCtr) { l.NetDevices = netDevicesIn(p.NetDevices) }, nil, "the interface's name in the container; the key is its name on the host"},
	{"scheduler", "Scheduler", "0.11", func(p *pLinuxCtr, l *lCtr) { l.Scheduler = one(&schedulerTable, p.Scheduler) }, &schedulerTable, ""},
	{"rdt", "RDT", "0.11", func(p *pLinuxCtr, l *lCtr) { l.RDT = one(&rdtTable, p.Rdt) }, &rdtTable, ""},
}

var containerTable = table[pCtr, lCtr]{
	{"id", "ID", "0.2", func(p *pCtr, l *lCtr) { l.ID = p.Id }, nil, "empty at CreateContainer in iSulad"},
	{"pod_sandbox_id", "PodID", "0.2", func(p *pCtr, l *lCtr) { l.PodID = p.PodSandboxId }, nil, ""},
	{"name", "Name", "0.2", func(p *pCtr, l *lCtr) { l.Name = p.Name }, nil, "empty at CreateContainer in CRI-O up to 1.36"},
	{
		"state", "State", "0.2", func(p *pCtr, l *lCtr) { l.State = lifecycle.State(p.State) }, nil,
		"containerd reports an exited container as unknown",
	},
	{"labels{}", "Labels{}", "0.2", func(p *pCtr, l *lCtr) { l.Labels = p.Labels }, nil, "containerd adds the image's labels"},
	{"annotations{}", "Annotations{}", "0.2", func(p *pCtr, l *lCtr) { l.Annotations = p.Annotations }, nil, ""},
	{"args[]", "Args[]", "0.2", func(p *pCtr, l *lCtr) { l.Args = p.Args }, nil, ""},
	{"env[]", "Env[]", "0.2", func(p *pCtr, l *lCtr) { l.Env = p.Env }, nil, ""},
	{"mounts[]", "Mounts[]", "0.2", func(p *pCtr, l *lCtr) { l.Mounts = list(&mountTable, p.Mounts) }, &mountTable, ""},
	{"hooks", "Hooks", "0.2", func(p *pCtr, l *lCtr) { l.Hooks = one(&hooksTable, p.Hooks) }, &hooksTable, ""},
	{"linux", "", "0.2", func(p *pCtr, l *lCtr) { linuxContainerTable.convert(p.Linux, l) }, &linuxContainerTable, ""},
	{"pid", "PID", "0.2", func(p *pCtr, l *lCtr) { l.PID = p.Pid }, nil, ""},
	{"rlimits[]", "Rlimits[]", "0.4", func(p *pCtr, l *lCtr) { l.Rlimits = list(&rlimitTable, p.Rlimits) }, &rlimitTable, "CRI-O does not fill it"},
	{"created_at", "CreatedAt", "0.10", func(p *pCtr, l *lCtr) { l.CreatedAt = p.CreatedAt }, nil, ""},
	{"started_at", "StartedAt", "0.10", func(p *pCtr, l *lCtr) { l.StartedAt = p.StartedAt }, nil, ""},
	{"finished_at", "FinishedAt", "0.10", func(p *pCtr, l *lCtr) { l.FinishedAt = p.FinishedAt }, nil, ""},
	{"exit_code", "ExitCode", "0.10", func(p *pCtr, l *lCtr) { l.ExitCode = p.ExitCode }, nil, ""},
	{"status_reason", "Reason", "0.10", func(p *pCtr, l *lCtr) { l.Reason = p.StatusReason }, nil, "containerd does not forward it"},
	{"status_message", "Message", "0.10", func(p *pCtr, l *lCtr) { l.Message = p.StatusMessage }, nil, "containerd does not forward it"},
	{"CDI_devices[]", "CDIDevices[]", "0.10", func(p *pCtr, l *lCtr) { l.CDIDevices = texts(p.CDIDevices, (*api.CDIDevice).GetName) }, nil, "CRI-O does not fill it"},
	{"user", "User", "0.11", func(p *pCtr, l *lCtr) { l.User = one(&userTable, p.User) }, &userTable, "CRI-O does not fill it"},
	{"image", "Image", "0.12.2", func(p *pCtr, l *lCtr) { l.Image = one(&imageTable, p.Image) }, &imageTable, ""},
}

// containerIn translates a container; nil stays nil.
func containerIn(p *api.Container) *lifecycle.Container { return one(&containerTable, p) }

func netDevicesIn(in map[string]*api.LinuxNetDevice) map[string]string {
	if len(in) == 0 {
		return nil
	}
	out := make(map[string]string, len(in))
	for host, d := range in {
		out[host] = d.GetName()
	}
	return out
}
