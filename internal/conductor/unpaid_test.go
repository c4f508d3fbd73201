package conductor_test

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/placement/choose"
	"github.com/trimtab/trimtab/internal/placement/pools"
	"github.com/trimtab/trimtab/internal/topology"
)

// asks is a pod that asks for a kind of intent. Several run at once, each with its number, so
// that their costs add up.
type asks struct {
	kind        intent.Kind
	name        string
	labels      map[string]string
	annotations func(i int) map[string]string
	// one: only one such pod runs, since several would form one pool and pay for its CPUs
	// together.
	one bool
}

// always asks for the same, whatever the number.
func always(pairs ...string) func(int) map[string]string {
	return func(int) map[string]string {
		out := map[string]string{}
		for i := 0; i+1 < len(pairs); i += 2 {
			out[pairs[i]] = pairs[i+1]
		}
		return out
	}
}

// everyKind asks for each kind of intent, in each dialect that has it.
func everyKind() []asks {
	gpu := `{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-memory":"1Gi","koordinator.sh/gpu-memory-ratio":"5"}}],"rdma":[{"minor":0,"busID":"0000:01:00.0"}]}`
	level := func(level string, more ...string) func(int) map[string]string {
		return always(append(more, intent.KatalystQoSLevel, level)...)
	}
	return []asks{
		{intent.ClassSystem, "SYSTEM", labelled("SYSTEM"), nil, false},
		{intent.ClassSystem, "system_cores", nil, level("system_cores", intent.KatalystCPU, `{"cpuset_pool":"reserve"}`), false},
		{intent.ClassDedicated, "LSR", labelled("LSR"), nil, false},
		{intent.ClassDedicated, "LSE", labelled("LSE"), nil, false},
		{intent.ClassDedicated, "dedicated_cores", nil, level("dedicated_cores"), false},
		{intent.ClassShared, "LS", labelled("LS"), nil, false},
		{intent.ClassShared, "shared_cores", nil, level("shared_cores"), false},
		{intent.ClassReclaimed, "BE", labelled("BE"), nil, false},
		{intent.ClassReclaimed, "reclaimed_cores", nil, level("reclaimed_cores"), false},
		{intent.AssignedCPUs, "cpuset", nil, func(i int) map[string]string { return cpuset(fmt.Sprintf("%d-%d", 4+2*i, 5+2*i)) }, false},
		{intent.AssignedCPUs, "cpuset of an LSR pod", labelled("LSR"), func(i int) map[string]string { return cpuset(fmt.Sprintf("%d-%d", 4+2*i, 5+2*i)) }, false},
		{intent.NUMANodes, "numaNodeResources", labelled("LS"), func(i int) map[string]string {
			return assigned(fmt.Sprintf(`{"numaNodeResources":[{"node":%d,"resources":{"cpu":"2"}}]}`, i%2))
		}, false},
		{intent.NUMANodes, "numa_binding, shared", nil, level("shared_cores", intent.KatalystMemory, bound), true},
		{intent.NUMANodes, "numa_binding, dedicated", nil, level("dedicated_cores", intent.KatalystMemory, bound), false},
		{intent.NUMANodes, "numa_binding, reclaimed", nil, level("reclaimed_cores", intent.KatalystMemory, bound), false},
		{intent.NUMAExclusive, "numa_exclusive", nil, level("dedicated_cores", intent.KatalystMemory, exclusive), false},
		{intent.NUMAExclusive, "numa_share", nil, level("shared_cores", intent.KatalystMemory, bound, intent.KatalystCPU, `{"numa_share":"false"}`), true},
		{intent.CPUPreference, "isolated", labelled("LSR"), always(intent.TrimtabIsolated, "true"), false},
		{intent.CPUPreference, "kind of core", labelled("LSR"), always(intent.TrimtabCoreType, "performance"), false},
		{intent.NamedPool, "cpuset_pool", nil, func(i int) map[string]string {
			return katalyst("shared_cores", fmt.Sprintf(`{"cpuset_pool":"mine-%d"}`, i))
		}, false},
		{intent.NamedPool, "cpuset_pool of a node", nil, func(i int) map[string]string {
			out := katalyst("shared_cores", fmt.Sprintf(`{"cpuset_pool":"mine-%d"}`, i))
			out[intent.KatalystMemory] = bound
			return out
		}, false},
		{intent.BatchResources, "batch-cpu", labelled("BE"), func(int) map[string]string { return batchOf(`"64000"`) }, false},
		{intent.GPUEnv, "GPU", nil, always(intent.KoordDevices, gpu), false},
		{intent.GPULibrary, "HAMi-core", map[string]string{intent.KoordGPUIsolation: "HAMi-core"}, always(intent.KoordDevices, gpu), false},
		{intent.Devices, "RDMA", nil, always(intent.KoordDevices, gpu), false},
		{intent.CPUQoSKind, "cpuQOS", labelled("LS"), always(intent.KoordCPUQoS, `{"groupIdentity":2}`), false},
		{intent.Quota, "unset quota", labelled("LSR"), always(intent.TrimtabUnsetQuota, "true"), false},
		{intent.HugepageLimits, "hugepages", nil, always(intent.TrimtabHugepages, `{"a":{"hugepages-2Mi":"2Gi"}}`), false},
		{intent.DiskLimits, "blkio-limit", nil, always(intent.RubikBlkioLimit, `{"device_read_bps":[{"device":"sda","value":"1000000"}]}`), false},
		{intent.BlockIO, "class of block I/O", nil, always(intent.TrimtabBlockIOClass, "fast"), false},
		{intent.OOMScore, "OOM score", nil, always(intent.KoordOOMScore, "-999"), false},
		{intent.OOMScore, "OOM score of a container", nil, always(intent.KoordOOMScoreSpec, `{"a":-999}`), false},
		{intent.RDT, "resctrl", nil, always(intent.KoordResctrl, `{"mb":{"schemata":{"percent":100}}}`), false},
		{intent.RDT, "class of RDT", nil, always(intent.TrimtabRDTClass, "gold"), false},
		{intent.CoreSched, "cookie", map[string]string{intent.KoordCoreSchedGroup: "mine"}, nil, false},
		{intent.Preemption, "preemptable", nil, always(intent.RubikPreemptable, "true"), false},
		{intent.MemoryProtection, "not preemptable", nil, always(intent.RubikPreemptable, "false"), false},
		{intent.BurstKind, "burst", nil, always(intent.RubikBurst, "200000"), false},
		{intent.CacheLimit, "cache", nil, always(intent.RubikCacheLimit, "low"), false},
		{intent.UlimitsKind, "ulimits", nil, always(intent.NRIUlimits, "- {type: memlock, hard: 1073741824, soft: 1073741824}"), false},
		{intent.IOPrioKind, "I/O priority", nil, always(intent.NRIIOPriority, "class: IOPRIO_CLASS_RT"), false},
		{intent.SchedKind, "scheduler", nil, always(intent.NRIScheduler, "{policy: SCHED_FIFO, priority: 99}"), false},
		{intent.MemPolicyKind, "memory policy", nil, always(intent.NRIMemPolicy, "{mode: MPOL_BIND, nodes: '0'}"), false},
		{intent.MemPolicyKind, "class of memory policies", nil, always(intent.NRIMemoryPolicyClass, "bound"), false},
		{intent.SysctlKind, "parameters", nil, always(intent.NRISysctl, "net.ipv4.tcp_syncookies: 0"), false},
		{intent.DeviceNodeKind, "devices by number", nil, always(intent.NRIDevices, "- {path: /dev/sda, type: b, major: 8, minor: 0}"), false},
		{intent.Mounts, "mounts", nil, always(intent.NRIMounts, "- {source: /, destination: /host}"), false},
		{intent.ExclusiveDevicesKind, "CDI devices for it alone", nil, always(intent.TrimtabCDIDevices, `{"a":{"vendor.com/class":2}}`), false},
		{intent.CDIKind, "CDI devices", nil, always(intent.NRICDI, "[vendor.com/class=all]"), false},
		{intent.NetDeviceKind, "interfaces", nil, always(intent.NRINetDevices, "- {hostIf: eth0}"), false},
		{intent.NetDeviceKind, "interfaces of the pod", nil, always(intent.NRIPodNetwork, "- {name: eth0}"), false},
		{intent.BalloonKind, "type of balloons", nil, always(intent.NRIBalloon, "reserved"), false},
		{intent.ClassSystem, "reserved CPUs", nil, always(intent.NRIPreferReserved, "true"), false},
		{intent.CPUPreference, "own CPUs", nil, always(intent.NRIPreferShared, "false"), false},
		{intent.CPUPreference, "isolated CPUs", nil, always(intent.NRIPreferIsolated, "true"), false},
		{intent.CPUPreference, "only isolated CPUs", nil, always(intent.NRIRequireIsolated, "true"), false},
		{intent.CPUPreference, "part of the node", nil, always(intent.NRIUnlimited, "system"), false},
		{intent.CPUPreference, "affinity", nil, always(intent.NRIAffinity, "a: [b]"), false},
		{intent.CPUPreference, "affinity by expressions", nil, always(intent.NRIAffinity, `{"a":[{"scope":{"operator":"AlwaysTrue"},"match":{"key":"name","operator":"Exists"}}]}`), false},
		{intent.SchedClassKind, "scheduling class", nil, always(intent.NRISchedulingClass, "realtime"), false},
		{intent.MemoryQoSKind, "memory class", nil, always(intent.NRIMemoryQoS, "bronze"), false},
		{intent.MemoryQoSKind, "memory.high", nil, always(intent.NRIMemoryHigh, "max"), false},
		{intent.MemoryQoSKind, "swap", nil, always(intent.NRISwapMax, "max"), false},
		{intent.ThreadsKind, "threads", nil, always(intent.NRIHideThreads, "false"), false},
		{intent.PreserveKind, "preserved CPUs", nil, always(intent.NRIPreserveCPU, "true"), false},
		{intent.PreserveKind, "preserved memory", nil, always(intent.NRIPreserveMemory, "true"), false},
		{intent.MemoryTypeKind, "kinds of memory", nil, always(intent.NRIMemoryType, "HBM,PMEM"), false},
		{intent.CgroupKind, "writable cgroups", nil, always(intent.NRICgroups, "true"), false},
		{intent.IntelRDTKind, "class of resctrl", nil, always(intent.NRIClosID, "gold"), false},
		{intent.IntelRDTKind, "schemata", nil, always(intent.NRISchemata, "L3:0=fffff"), false},
		{intent.IntelRDTKind, "monitoring", nil, always(intent.NRIMonitoring, "true"), false},
		{intent.OCIHookKind, "OCI hooks", nil, always("trace.example/on", "yes"), false},
		{intent.PluginKind, "values of plugins", nil, nil, false},
		{intent.CPUEnvKind, "environment", labelled("LSR"), always(intent.TrimtabCPUEnv, "true"), false},
	}
}

// TestEveryKindIsPlayed: the suite asks for every kind, and each of its pods asks for its kind.
func TestEveryKindIsPlayed(t *testing.T) {
	played := map[intent.Kind]bool{}
	for _, a := range everyKind() {
		played[a.kind] = true
		said := intent.Read(&lifecycle.Pod{Labels: a.labels, Annotations: a.texts(0)}, nil, intent.Dialects())
		rules := intent.Rules{{Kinds: []intent.Kind{a.kind}, Namespaces: []string{"*"}, Decision: intent.Refuse, Name: "rule 1"}}
		allowed := intent.Rules{{Kinds: []intent.Kind{"*"}, Namespaces: []string{"*"}, Decision: intent.Allow}}
		if reflect.DeepEqual(rules.Authorise(said, "default"), allowed.Authorise(said, "default")) {
			t.Errorf("%s: %s asks for nothing that a rule would refuse", a.kind, a.name)
		}
	}
	for _, d := range intent.Defaults() {
		if !played[d.Kind] {
			t.Errorf("no pod asks for %s", d.Kind)
		}
	}
}

func (a *asks) texts(i int) map[string]string {
	if a.annotations == nil {
		return nil
	}
	return a.annotations(i)
}

// pay is what a pod requests, in milli-CPUs, and its quota.
type pay struct {
	name   string
	parent string
	shares uint64
	quota  int64
}

// paid has requests and limits of two CPUs.
func paid() pay { return pay{"two", "", 2048, 200000} }

// unpaid returns resources that do not pay for what a pod requests of a kind.
func unpaid(kind intent.Kind) []pay {
	few := pay{"one too few", "", 1022, 99900}
	if kind == intent.AssignedCPUs {
		few = pay{"one too few", "", 2046, 199900}
	}
	return []pay{
		{"nothing", "besteffort", 2, -1}, {"nothing, and a limit", "burstable", 2, 6400000},
		{"a hundredth, and no limit", "burstable", 10, -1}, few,
	}
}

// city is a node with pods of every class, and its number of attackers.
type city struct {
	*stage
	pools bool
}

const attackers = 3

func sixteen(t testing.TB) *topology.Machine {
	t.Helper()
	var cpus []topology.CPU
	for i := range 16 {
		cpus = append(cpus, topology.CPU{ID: i, Core: i / 2, Node: i / 8})
	}
	m, err := topology.New(cpus, map[int]uint64{0: 1 << 33, 1: 1 << 33})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func newCity(t testing.TB, v cgroup.Version, pooled bool, rules intent.Rules) *city {
	t.Helper()
	s := &city{stage: &stage{model: newModelOn(t, sixteen(t), v, faults{})}, pools: pooled}
	s.log = &s.said
	s.policy.Rules = append(intent.Rules{{Kinds: []intent.Kind{"*"}, Namespaces: []string{"trusted"}, Decision: intent.Allow, Name: "rule 1"}}, rules...)
	s.policy.Hooks = []hook.Hook{hook.CPUSetOptions{UnsetQuota: true}, hook.BatchOptions{}, hook.GPU{}, hook.OOMScoreOptions{}, hook.Normalization{Ratio: 100},
		hook.Burst{}, hook.Preemption{Yield: hook.YieldIdle, MemoryHigh: 80, MemoryLow: 50, MemoryMin: 10, KillTogether: true, KernelFiles: lacks(v)}}
	s.policy.Hooks = append(s.policy.Hooks, injectors()...)
	p := &s.policy.Pools
	p.Reserved = topology.SetOf(0)
	p.Shared = s.machine.Online().Minus(p.Reserved)
	p.Reclaimed = p.Shared
	// A pod without a class shares the default pool, like one that asks for a class.
	p.UnlabelledShared = true
	if pooled {
		s.policy.Placement = &pools.Policy{Tree: choose.NewTree(s.machine), Sizing: pools.NewSizing(s.machine)}
	}
	s.con = nil
	s.boot()
	return s
}

// settle runs the pods that could lose something.
func (s *city) settle(t testing.TB) {
	t.Helper()
	s.mustRun(t, attack{namespace: "trusted", name: "owner", annotations: cpuset("2-3")})
	s.mustRun(t, attack{pod: "web", parent: "burstable", labels: labelled("LS"), shares: 2560, quota: -1})
	s.mustRun(t, attack{pod: "batch", parent: "besteffort", labels: labelled("BE"), shares: 2, quota: -1})
	s.mustRun(t, attack{pod: "plain", parent: "burstable", shares: 512, quota: -1})
	if s.pools {
		s.mustRun(t, attack{pod: "chosen", labels: labelled("LSR"), shares: 1024, quota: 100000})
		s.mustRun(t, attack{pod: "db", parent: "burstable", annotations: katalyst("shared_cores", `{"cpuset_pool":"db"}`), shares: 2048, quota: -1})
	}
}

// late runs pods that start after the attack, and should get the same as without it.
func (s *city) late(t testing.TB) {
	t.Helper()
	s.mustRun(t, attack{pod: "late", namespace: "trusted", annotations: cpuset("12-13")})
	if s.pools {
		s.mustRun(t, attack{pod: "late-chosen", labels: labelled("LSR"), shares: 5 * 1024, quota: 500000})
		s.mustRun(t, attack{pod: "late-node", annotations: map[string]string{intent.KatalystQoSLevel: "dedicated_cores", intent.KatalystMemory: bound}})
	}
	s.mustRun(t, attack{pod: "late-web", parent: "burstable", labels: labelled("LS"), shares: 1024, quota: -1})
}

func (s *city) mustRun(t testing.TB, a attack) *modelCtr {
	t.Helper()
	c, err := s.run(a, true)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// have returns everything that the files and the specs show of all pods but the attackers.
func (s *city) have() map[string]string {
	out := map[string]string{}
	for _, c := range s.live() {
		if strings.HasPrefix(c.pod.Name, "attacker") {
			continue
		}
		for file, text := range s.kernel.Texts(c.dir()) {
			out[c.pod.Name+" "+strings.ReplaceAll(file, c.dir(), "container")] = text
		}
		parent := strings.TrimPrefix(c.pod.CgroupParent, "/")
		for file, text := range s.kernel.Texts(parent) {
			out[c.pod.Name+" "+strings.ReplaceAll(file, parent, "pod")] = text
		}
		out[c.pod.Name+" spec"] = fmt.Sprint(c.Env, c.Mounts, c.created, c.mems)
	}
	maps.DeleteFunc(out, func(file, _ string) bool { // ids that the kernel assigns in turn
		return strings.HasSuffix(file, "cgroup.threads") || strings.HasSuffix(file, "cgroup.procs") || strings.HasSuffix(file, "/tasks")
	})
	for _, g := range nodeview.Status(s.con).CPUs.Grants {
		out["grant of "+g.Pod] = g.CPUs
	}
	return out
}

// play runs the city: attackers are created with the request first, and resized to then if that
// differs. A nil asks makes pods that ask for nothing; absent leaves them out.
func (s *city) play(t testing.TB, a *asks, first, then pay, absent bool) map[string]string {
	t.Helper()
	s.settle(t)
	var all []*modelCtr
	for i := range attackers {
		if absent || a != nil && a.one && i > 0 {
			s.n++
			continue
		}
		at := attack{pod: fmt.Sprintf("attacker-%d", i), parent: first.parent, shares: first.shares, quota: first.quota}
		if a != nil {
			at.labels, at.annotations = a.labels, a.texts(i)
		}
		all = append(all, s.mustRun(t, at))
	}
	for i, c := range all {
		if first == then {
			break
		}
		var r lifecycle.Resources
		r.CPU.Shares, r.CPU.Quota = lifecycle.Some(then.shares), lifecycle.Some(then.quota)
		s.update(c, r)
		if i%2 == 0 { // not every runtime reports the pod's sum
			s.updatePod(c.pod, r)
		}
	}
	s.late(t)
	return s.have()
}

// TestUnpaid: whatever a pod asks for, in every dialect and under both policies, it does not
// get what it requests too little or nothing for, when it is created and after a resize. All
// others have exactly what they have without it, or beside the same pod that asks for nothing.
// If it requests nothing, both are the same.
func TestUnpaid(t *testing.T) {
	t.Parallel()
	for _, v := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		for _, pools := range []bool{false, true} {
			if pools != (v == cgroup.V2) && os.Getenv("TRIMTAB_SOAK") == "" {
				continue // the other two are in make soak
			}
			t.Run(fmt.Sprintf("%s/pools=%t", v, pools), func(t *testing.T) {
				t.Parallel()
				absent := newCity(t, v, pools, nil).play(t, nil, paid(), paid(), true)
				type pods struct {
					pays [2]pay
					one  bool
				}
				silent := map[pods]map[string]string{}
				for _, a := range everyKind() {
					for _, then := range unpaid(a.kind) {
						for _, first := range []pay{then, {"two", then.parent, 2048, max(then.quota, 200000)}} {
							key := pods{[2]pay{first, then}, a.one}
							if silent[key] == nil {
								silent[key] = newCity(t, v, pools, nil).play(t, &asks{one: a.one}, first, then, false)
							}
							checkUnpaid(t, newCity(t, v, pools, nil), a, key.pays, [2]map[string]string{absent, silent[key]})
						}
					}
				}
			})
		}
	}
}

func checkUnpaid(t *testing.T, s *city, a asks, pays [2]pay, want [2]map[string]string) {
	t.Helper()
	name := fmt.Sprintf("%s (%s) requests %s", a.kind, a.name, pays[1].name)
	if pays[0] != pays[1] {
		name += ", after " + pays[0].name
	}
	if pays[1].shares == 2 && !maps.Equal(want[0], want[1]) {
		t.Errorf("%s: a silent pod costs others: %s", name, cmp.Diff(want[0], want[1]))
	}
	got := s.play(t, &a, pays[0], pays[1], false)
	if !maps.Equal(got, want[0]) && !maps.Equal(got, want[1]) {
		t.Errorf("%s: others have something else: %s", name, cmp.Diff(want[1], got))
	}
	s.restart()
	if now := s.have(); !maps.Equal(got, now) {
		t.Errorf("%s: a restart gives others something else: %s", name, cmp.Diff(got, now))
	}
	for _, b := range s.broken {
		// What is checked of quotas and bursts is of the model's own pods.
		if strings.HasPrefix(b, "I1") || strings.HasPrefix(b, "I2") || strings.Contains(b, "a restart moved") || strings.Contains(b, "a restart lost") {
			t.Errorf("%s: %s", name, b)
		}
	}
}

// TestUnpaidCanFail shows that the suite finds a fault: with rules that count nothing, others
// lose CPUs.
func TestUnpaidCanFail(t *testing.T) {
	t.Parallel()
	open := intent.Rules{{Kinds: []intent.Kind{"*"}, Namespaces: []string{"*"}, Decision: intent.Allow}}
	var costs []intent.Kind
	for _, a := range everyKind() {
		then := unpaid(a.kind)[0]
		want := newCity(t, cgroup.V2, true, nil).play(t, nil, then, then, true)
		if got := newCity(t, cgroup.V2, true, open).play(t, &a, then, then, false); !maps.Equal(want, got) {
			costs = append(costs, a.kind)
		}
	}
	for _, kind := range []intent.Kind{intent.AssignedCPUs, intent.NUMAExclusive} {
		if !slices.Contains(costs, kind) {
			t.Errorf("with everything allowed %s costs others nothing; only %v do", kind, costs)
		}
	}
}
