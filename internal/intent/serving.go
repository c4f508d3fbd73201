package intent

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// Serving has the settings that determine which requests of pods this node serves. A request
// that is not served has no effect, and the agent reports it.
type Serving struct {
	// Hooks are the names of the hooks that are on.
	Hooks []string
	// Policy is placement.policy; "" is none.
	Policy string
	// KubeletOwns reports that the kubelet decides who owns CPUs (authority: kubelet).
	KubeletOwns bool
}

// ServersOf returns the hooks that serve a kind of request made by a key; one of them is
// enough.
func ServersOf(kind Kind, key string) []string {
	if key == RubikPreemptable {
		kind = Preemption
	}
	return declared(kind).hooks
}

// apply removes the requests that the node does not serve from one dialect's result, and reports
// them. A nil Serving serves everything.
func (s *Serving) apply(p *Pod) {
	if s == nil {
		return
	}
	for kind, sub := range requests {
		key := sub.key(p)
		if key == "" {
			continue
		}
		if hooks := ServersOf(kind, key); !slices.ContainsFunc(hooks, s.on) {
			value := sub.value(p)
			if kind != GPUEnv && kind != Devices { // CPUs may still be chosen near them
				sub.remove(p)
			}
			p.unservedOnce(key, value, "%s: nothing on this node serves it; %s would", kind, switches(hooks))
		}
	}
	s.placed(p)
	for _, of := range policyRequests() {
		if slices.Contains(of.policies, s.Policy) {
			continue
		}
		for _, r := range of.requests {
			if key := r.key(p); key != "" {
				p.unserved(key, r.value(p), "only placement.policy: %s serves it", strings.Join(of.policies, " or "))
			}
			r.remove(p)
		}
	}
}

// ofPolicies are requests that only some policies serve.
type ofPolicies struct {
	policies []string
	requests []request
}

func policyRequests() []ofPolicies {
	both := slices.Concat(declared(ThreadsKind).requests, declared(PreserveKind).requests, declared(MemoryTypeKind).requests)
	return []ofPolicies{
		{[]string{"balloons"}, slices.Concat(declared(BalloonKind).requests, declared(SchedClassKind).requests)},
		{[]string{"balloons", "topology-aware"}, both},
		{[]string{"topology-aware"}, []request{
			affirms(func(p *Pod) *Sourced[PerContainer[bool]] { return &p.PreferReserved }),
			field(func(p *Pod) *Sourced[PerContainer[bool]] { return &p.PreferShared }, perContainer),
			field(func(p *Pod) *Sourced[PerContainer[bool]] { return &p.PreferIsolated }, perContainer),
			field(func(p *Pod) *Sourced[PerContainer[string]] { return &p.Unlimited }, perContainer),
			field(func(p *Pod) *Sourced[map[string][]string] { return &p.Affinity }, text),
			field(func(p *Pod) *Sourced[map[string][]string] { return &p.AntiAffinity }, text),
		}},
	}
}

func (s *Serving) on(hook string) bool { return slices.Contains(s.Hooks, hook) }

// switches names the configuration keys that switch hooks on.
func switches(hooks []string) string {
	keys := make([]string, len(hooks))
	for i, h := range hooks {
		keys[i] = "hooks." + h + ".enabled: true"
	}
	return strings.Join(keys, " or ")
}

// placed removes requests that only the policy pools serves.
func (s *Serving) placed(p *Pod) {
	if s.Policy == "pools" {
		return
	}
	none := "the node's placement policy is " + cmp.Or(s.Policy, "none") + "; placement.policy: pools would serve it"
	if p.NUMA.IsSet() {
		p.unserved(p.NUMA.Key, text(p.NUMA.V), "%s: binding to NUMA nodes: %s", NUMANodes, none)
		p.NUMA = Sourced[NUMABinding]{}
	}
	if p.Pool.IsSet() {
		p.unserved(p.Pool.Key, p.Pool.V, "%s: a pool by name: %s", NamedPool, none)
		p.Pool = Sourced[string]{}
	}
	if p.CoreKind.IsSet() {
		p.unserved(p.CoreKind.Key, p.CoreKind.V.String(), "%s: %s", CPUPreference, none)
		p.CoreKind = Sourced[topology.CoreKind]{}
	}
	if p.Isolated.IsSet() {
		p.unserved(p.Isolated.Key, fmt.Sprint(p.Isolated.V), "%s: %s", CPUPreference, none)
		p.Isolated = Sourced[bool]{}
	}
	if p.Class.V == Dedicated && !p.CPUs.IsSet() && !s.KubeletOwns && s.on("cpuset") {
		if s.Policy == "" || s.Policy == "none" {
			p.unserved(p.Class.Key, p.Name, "%s: no scheduler assigned CPUs to the pod, and %s; its containers run in the shared pool", ClassDedicated, none)
		} else {
			p.unserved(p.Class.Key, p.Name, "%s: the node's placement policy %s does not read this class; it places the pod by its own rules", ClassDedicated, s.Policy)
		}
	}
}

// unserved adds a well-formed request that nothing on this node serves.
func (p *Pod) unserved(key, value, format string, args ...any) {
	p.add(lifecycle.Problem{Key: key, Unserved: true}, value, format, args)
}

// unservedOnce is unserved for the first request of a key. If a hook is off, all requests of the
// key together make one problem.
func (p *Pod) unservedOnce(key, value, format string, args ...any) {
	if !p.problems.Contains(func(q lifecycle.Problem) bool { return q.Unserved && q.Key == key }) {
		p.unserved(key, value, format, args...)
	}
}

// keyIndex indexes the table of keys for reading pods.
type keyIndex struct {
	unsupported []Key // each key once
	scoped      map[string]Key
	read        []Key // each key of a dialect once
}

// indexed is built once, because a runtime waits while the agent reads a pod.
var indexed = indexOf(Keys())

func indexOf(keys []Key) keyIndex {
	x, seen := keyIndex{scoped: map[string]Key{}}, map[string]bool{}
	for _, k := range keys {
		switch {
		case !k.Place.onPods() || seen[k.Name] || k.Name == RecordKey:
			continue
		case k.Handling == KeyRead:
			x.read = append(x.read, k)
			if k.Scoped {
				x.scoped[k.Name] = k
			}
		case k.Handling == KeyUnsupported && k.Field == "":
			x.unsupported = append(x.unsupported, k)
			if k.Scoped {
				x.scoped[k.Name] = k
			}
		default:
			continue
		}
		seen[k.Name] = true
	}
	return x
}

// maxScanned limits the annotations that are searched for scoped keys. In a pod with more
// annotations, a container's scoped key may be missed; other keys are found.
const maxScanned = 512

// reportUnread adds problems for keys that nothing reads: unsupported keys, and keys of
// dialects that the configuration leaves out.
func (p *Pod) reportUnread(t *texts, order []string) {
	for _, k := range indexed.unsupported {
		p.unsupported(k, k.Name, t.under(k, k.Name))
		if k.Scoped {
			p.unsupported(k, k.Name+"/pod", t.under(k, k.Name+"/pod"))
		}
	}
	unread := map[string][]string{}
	for _, key := range t.scopedKeys() {
		name, _, _ := strings.Cut(key, "/")
		switch k := indexed.scoped[name]; {
		case k.Handling != KeyRead:
			p.unsupported(k, key, t.annotations.created[key])
		case !slices.Contains(order, k.System):
			unread[k.System] = append(unread[k.System], key)
		}
	}
	for _, k := range indexed.read {
		if !slices.Contains(order, k.System) && t.under(k, k.Name) != "" {
			unread[k.System] = append(unread[k.System], k.Name)
		}
		if pod := k.Name + "/pod"; k.Scoped && !slices.Contains(order, k.System) && t.under(k, pod) != "" {
			unread[k.System] = append(unread[k.System], pod)
		}
	}
	for _, system := range sortedKeys(unread) {
		names := slices.Sorted(slices.Values(unread[system]))
		p.unserved(names[0], "", "the configuration's list dialects does not contain %s: %d of its keys on this pod are ignored", system, len(names))
	}
}

// scopedKeys lists the annotations that are scoped keys for single containers.
func (t *texts) scopedKeys() (scoped []string) {
	if len(t.annotations.created) > maxScanned {
		return nil
	}
	for key := range t.annotations.created {
		if name, scope, has := strings.Cut(key, "/"); has && scope != "pod" {
			if _, is := indexed.scoped[name]; is {
				scoped = append(scoped, key)
			}
		}
	}
	slices.Sort(scoped)
	return scoped
}

func (p *Pod) unsupported(k Key, key, text string) {
	if text != "" && text != "false" {
		p.unserved(key, text, "the key is not supported: %s", k.Why)
	}
}
