package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/numahints"
	"github.com/trimtab/trimtab/internal/topology"
)

// This file chooses the CDI devices that a container has exclusively. The ledger keeps these devices for the
// container's key (pod UID and container name) until the last container with the key is removed or the pod ends. So a
// container that is created again gets the same devices.

// nodeDevices are the node's CDI devices and the containers that own them, for the decision about one new container. A
// device counts as free if the new container had it before, or can take it over from an earlier container of its pod.
type nodeDevices struct {
	all    []lifecycle.NodeDevice
	byName map[string]*lifecycle.NodeDevice
	// owners has the key of the container that owns a device, by the device's name.
	owners map[string]placement.Key
	// Each device node has a text that identifies it, such as "c 10:200" (nodeKeys). keysByName has, by the name of a
	// device, the texts of its device nodes. namesByNode has, by the text of a device node, the names of the devices
	// that have this device node.
	namesByNode map[string][]string
	keysByName  map[string][]string
}

// ContainerAsksDevices reports whether a container requests CDI devices of its own. Only then does a decision about the
// container need the node's CDI devices.
func (p *Policy) ContainerAsksDevices(requests *intent.Pod, container string) bool {
	return requests != nil && requests.ExclusiveDevices.V.Of(container).IsSet() && p.deviceGiver() != nil
}

// PodAsksDevices reports whether a container of a pod requests CDI devices of its own.
func (p *Policy) PodAsksDevices(requests *intent.Pod) bool {
	return requests != nil && requests.ExclusiveDevices.IsSet() && p.deviceGiver() != nil
}

// deviceGiver returns the hook that gives containers exclusive CDI devices; nil if this hook is off.
func (p *Policy) deviceGiver() hook.DeviceGiver {
	for _, h := range p.Hooks {
		if g, is := h.(hook.DeviceGiver); is {
			return g
		}
	}
	return nil
}

// Devices returns the CDI devices that containers have exclusively, by key. Callers must not change the map.
func (s *State) Devices() map[placement.Key][]string { return s.ledger.Devices() }

// HeldDevices returns the CDI devices that containers have exclusively, by pod UID and container name; nil
// for none. The checkpoint stores them in this form.
func (s *State) HeldDevices() (out map[string]map[string][]string) {
	for key, names := range s.ledger.Devices() {
		if out == nil {
			out = map[string]map[string][]string{}
		}
		if out[key.PodUID] == nil {
			out[key.PodUID] = map[string][]string{}
		}
		out[key.PodUID][key.Container] = names
	}
	return out
}

// DevicesChanged reports whether a container got or lost CDI devices.
func (p *Plan) DevicesChanged() bool { return p.draft != nil && p.draft.n.ledger.devicesChanged }

// holdDevices replaces the list of CDI devices that the container with the given key has exclusively. An empty list
// frees the devices.
func (b *draftLedger) holdDevices(key placement.Key, names []string) {
	if slices.Equal(b.Devices()[key], names) {
		return
	}
	if !b.isCopy {
		b.Ledger, b.isCopy = b.Clone(), true
	}
	b.SetDevices(key, names)
	b.devicesChanged = true
}

// freeDevices removes the devices of a pod's containers from the ledger, so that other containers can have them.
func (b *draftLedger) freeDevices(uid string) {
	for _, key := range b.KeysWithDevices(uid) {
		b.holdDevices(key, nil)
	}
}

// freeUnusedDevices frees the CDI devices that the ledger keeps for a key, if the pod no longer has a container with
// this key.
func (n *view) freeUnusedDevices(podID string, key placement.Key) {
	if len(n.ledger.Devices()[key]) == 0 || slices.ContainsFunc(n.containersOf(podID), func(c *Container) bool { return c.Key == key }) {
		return
	}
	n.ledger.holdDevices(key, nil)
}

// keepDevices keeps the CDI devices of containers when the policy changes. It copies them from owners, the ledger from
// before the change, to the draft's new ledger. It leaves out the devices of pods that have ended.
func (d *draft) keepDevices(owners *placement.Ledger) {
	for key, names := range owners.Devices() {
		if slices.ContainsFunc(d.n.base.PodsOf(key.PodUID), func(p *Pod) bool { return !p.Stopped }) {
			d.n.ledger.holdDevices(key, names)
		}
	}
}

// restoreDevices restores exclusive CDI devices at a Synchronize event, from the checkpoint. These are the devices of
// containers that have ended and are not created again yet, and of containers whose record is lost.
func (d *draft) restoreDevices() {
	d.n.ledger.devicesChanged = true
	for _, id := range d.plan.ChangedPods {
		uid := d.n.pods[id].Pod.UID
		for name, devices := range d.facts.HeldDevices[uid] {
			key := placement.Key{PodUID: uid, Container: name}
			if len(d.n.ledger.Devices()[key]) == 0 {
				d.n.ledger.holdDevices(key, devices)
			}
		}
	}
}

// devices returns the node's CDI devices for the decision about a new container.
func (s *placer) devices() *nodeDevices {
	if s.d.devices == nil {
		s.d.devices = s.n.nodeDevices(s.d.facts.NodeDevices, s.n.deviceOwners(s.mayTakeDevicesOf()))
	}
	return s.d.devices
}

// nodeDevices makes a nodeDevices from the node's CDI devices and their owners.
func (n *view) nodeDevices(all []lifecycle.NodeDevice, owners map[string]placement.Key) *nodeDevices {
	out := &nodeDevices{all: all, byName: make(map[string]*lifecycle.NodeDevice, len(all)), owners: owners, namesByNode: map[string][]string{}, keysByName: map[string][]string{}}
	for i := range all {
		out.byName[all[i].Name] = &all[i]
		out.keysByName[all[i].Name] = nodeKeys(&all[i])
		for _, node := range out.keysByName[all[i].Name] {
			out.namesByNode[node] = append(out.namesByNode[node], all[i].Name)
		}
	}
	return out
}

// mayTakeDevicesOf returns a function that reports whether the new container can have the devices that the ledger keeps
// for a key. This is so for the container's own key, and for the key of a container whose devices it can take over.
func (s *placer) mayTakeDevicesOf() func(key placement.Key) bool {
	lives := s.n.liveNames(s.p.Pod.ID, s.c.ID)
	return func(key placement.Key) bool {
		return key == s.c.Key || key.PodUID == s.p.Pod.UID && s.p.canTakeOverDevices(key.Container, s.c.Name, lives)
	}
}

// deviceOwners returns a map from the name of each CDI device that a container has to the container's key. It leaves
// out the containers for whose key the function except returns true.
func (n *view) deviceOwners(except func(placement.Key) bool) map[string]placement.Key {
	owners := map[string]placement.Key{}
	for key, names := range n.ledger.Devices() {
		if except(key) {
			continue
		}
		for _, name := range names {
			owners[name] = key
		}
	}
	for _, other := range n.changedContainers(true) {
		owner := n.pod(other.PodID)
		if !other.Alive() || owner == nil || except(other.Key) {
			continue
		}
		for _, name := range devicesOutsideLedger(owner, other) {
			owners[name] = other.Key
		}
	}
	return owners
}

// canTakeOverDevices reports whether a new container can take over the devices of the container oldName of the same
// pod. The new container can do so if oldName is an init container that has ended or comes earlier in the spec. A new
// init container can also do so if oldName has ended and is no sidecar.
func (p *Pod) canTakeOverDevices(oldName, newName string, lives map[string]bool) bool {
	if p.Spec == nil {
		return false
	}
	kind := p.kindOf(oldName)
	return kind == lifecycle.Init && (p.comesAfter(newName, oldName) || !lives[oldName]) ||
		p.kindOf(newName) == lifecycle.Init && kind != lifecycle.Sidecar && !lives[oldName]
}

// devicesOutsideLedger returns the CDI devices that a container does not have exclusively: those in the runtime's
// request, those that the kubelet granted, and those that hooks add and that are not exclusive.
func devicesOutsideLedger(p *Pod, c *Container) []string {
	names := slices.Concat(c.RequestedDevices.CDI, p.Granted.DevicesOf(c.Name).CDI)
	for i := range c.decision.proposed {
		if v := &c.decision.proposed[i]; v.Field == lifecycle.CDIDevice && !slices.Contains(c.CDIDevices, v.Key) {
			names = append(names, v.Key)
		}
	}
	return names
}

// ownerName returns the name of a key's container for users: namespace/pod/container.
func (n *view) ownerName(key placement.Key) string {
	pod := key.PodUID
	for _, p := range n.base.PodsOf(key.PodUID) {
		pod = p.FullName()
	}
	for _, p := range n.pods {
		if p != nil && p.Pod.UID == key.PodUID {
			pod = p.FullName()
		}
	}
	return pod + "/" + key.Container
}

// nodeKeys returns, for each device node of a device, a text that identifies the device node.
func nodeKeys(d *lifecycle.NodeDevice) (keys []string) {
	for _, node := range d.Nodes {
		key := cmp.Or(node.Host, node.Path)
		if node.Major != 0 {
			key = fmt.Sprintf("%s %d:%d", node.Type, node.Major, node.Minor)
		}
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// owner returns the container that has the CDI device d, or another CDI device with the same device nodes. Two names
// can mean the same device: CDI specifications can have several names for one physical device, and one name for all
// devices together.
func (u *nodeDevices) owner(d *lifecycle.NodeDevice) (owner placement.Key, taken bool) {
	if owner, taken = u.owners[d.Name]; taken {
		return owner, true
	}
	mine := u.keysByName[d.Name]
	for _, node := range mine {
		for _, name := range u.namesByNode[node] {
			if owner, taken = u.owners[name]; taken && eitherContainsOther(mine, u.keysByName[name]) {
				return owner, true
			}
		}
	}
	return owner, false
}

// isFree reports whether no container has a device.
func (u *nodeDevices) isFree(d *lifecycle.NodeDevice) bool {
	_, taken := u.owner(d)
	return !taken
}

// eitherContainsOther reports whether one of two lists of device nodes has all nodes of the other list. Lists that only
// overlap do not count: they may belong to different parts of one card that share some device nodes.
func eitherContainsOther(a, b []string) bool {
	return len(a) > 0 && len(b) > 0 && (containsAll(a, b) || containsAll(b, a))
}

// containsAll reports whether the list all has every element of the list some.
func containsAll(all, some []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
}

// singleDevices returns one CDI device for each physical device of a kind. It leaves out further names of the same
// device, and names for several devices together.
func (u *nodeDevices) singleDevices(kind string) (out []*lifecycle.NodeDevice) {
	for i := range u.all {
		d := &u.all[i]
		if lifecycle.KindOfCDI(d.Name) != kind {
			continue
		}
		mine := u.keysByName[d.Name]
		again := slices.ContainsFunc(mine, func(node string) bool {
			return slices.ContainsFunc(u.namesByNode[node], func(name string) bool {
				other := u.keysByName[name]
				return name != d.Name && lifecycle.KindOfCDI(name) == kind && containsAll(mine, other) && (len(other) < len(mine) || name < d.Name)
			})
		})
		if !again {
			out = append(out, d)
		}
	}
	return out
}

// deviceRequests returns the requests of a new container for devices of its own; nil for none.
func (s *placer) deviceRequests() []intent.DeviceRequest {
	if !s.isCreation || !s.n.policy.ContainerAsksDevices(s.p.Intent, s.c.Name) {
		return nil
	}
	return s.p.Intent.ExclusiveDevices.V.Of(s.c.Name).V
}

// knownDevices returns the devices of a container that are known before the container's CPUs are chosen: those that the
// container has, those that it requests by name, and those of its earlier attempt. CPUs are chosen near these devices.
func (s *placer) knownDevices() (all lifecycle.DeviceGrant) {
	all.CDI = slices.Clone(s.c.CDIDevices)
	asked := s.deviceRequests()
	for _, r := range asked {
		all.CDI = append(all.CDI, r.Names...)
	}
	if len(asked) == 0 {
		return all
	}
	all.CDI = append(all.CDI, s.n.ledger.Devices()[s.c.Key]...)
	slices.Sort(all.CDI)
	all.CDI = slices.Compact(all.CDI)
	for _, name := range all.CDI {
		if d := s.devices().byName[name]; d != nil {
			all.Nodes = append(all.Nodes, d.Nodes...)
		}
	}
	return all
}

// exclusiveHints returns hints for the exclusive CDI devices that a new container requests as a number of devices of a
// kind. If the NUMA node of any free device of a kind is not known, there are no hints for the kind. With scope pod,
// the hints of the pod's first container are about the devices that all containers of the pod request.
func (s *placer) exclusiveHints() (out []numahints.Resource) {
	for _, r := range s.deviceRequests() {
		if r.Number == 0 || len(s.n.ledger.Devices()[s.c.Key]) > 0 { // the hints for knownDevices already have these devices
			continue
		}
		need := s.deviceNeed(r)
		if c, total := countDevices(s.n.machine, s.devices(), r.Kind); c != nil && total >= need {
			c.Need = uint64(need) //nolint:gosec // a positive number
			out = append(out, numahints.Resource{Name: intent.Printable(r.Kind), Counts: c})
		}
	}
	return out
}

// countDevices counts the devices of a kind on each NUMA node. The result total is the number of all free devices of
// the kind. The result c is nil if the NUMA node of a free device is not known.
func countDevices(m *topology.Machine, u *nodeDevices, kind string) (c *numahints.Counts, total int) {
	c = &numahints.Counts{Free: make([]uint64, len(m.Nodes)), Capacity: make([]uint64, len(m.Nodes))}
	for _, d := range u.singleDevices(kind) {
		at, free := nodesOfDevice(m, d), u.isFree(d)
		if free && at == 0 {
			return nil, 0
		}
		for _, i := range at.Indices() {
			if c.Capacity[i]++; free {
				c.Free[i]++
			}
		}
		if free {
			total++
		}
	}
	return c, total
}

// deviceNeed returns how many devices the hints for the request r are about. With scope pod, as long as the pod owns no
// CPUs, this is the number of devices of the kind that all containers of the pod request. Otherwise it is the number in
// r.
func (s *placer) deviceNeed(r intent.DeviceRequest) int {
	if !s.n.policy.Topology.PodScope || !s.n.ledger.CPUsOfPod(s.p.Pod.UID).Empty() {
		return r.Number
	}
	need := 0
	for _, requested := range s.p.Intent.ExclusiveDevices.V.ByContainer {
		for _, other := range requested.V {
			if other.Kind == r.Kind {
				need += other.Number
			}
		}
	}
	return need
}

// nodesOfDevice returns the NUMA nodes near a CDI device; none if they are not known. It finds them by a PCI
// address in the device's name, and by the numbers of its character devices.
func nodesOfDevice(m *topology.Machine, d *lifecycle.NodeDevice) (at numahints.Mask) {
	if d == nil {
		return 0
	}
	address := d.Name[strings.LastIndexByte(d.Name, '=')+1:]
	if dev, ok := m.DeviceAt(address); ok && intent.IsPCIAddress(address) {
		at |= nodesWithCPUs(m, m.CPUsNear(dev))
	}
	for _, node := range d.Nodes {
		if dev, ok := m.DeviceWithNumber(fmt.Sprintf("%d:%d", node.Major, node.Minor)); ok && node.Type == "c" {
			at |= nodesWithCPUs(m, m.CPUsNear(dev))
		}
	}
	return at
}

// chooseDevices gives a new container the exclusive CDI devices that it requests, near its CPUs. The container gets
// either all requested devices or none. An existing container keeps its devices.
func (s *placer) chooseDevices() {
	if !s.isCreation {
		if s.c.Alive() && s.n.policy.ContainerAsksDevices(s.p.Intent, s.c.Name) && len(s.c.CDIDevices) == 0 && s.c.DevicesRefused == "" {
			s.c.DevicesRefused = "the container was created without the devices; " + RecreateHint
		}
		if len(s.c.CDIDevices) > 0 {
			s.n.ledger.holdDevices(s.c.Key, s.c.CDIDevices)
		}
		return
	}
	asked := s.deviceRequests()
	if len(asked) == 0 {
		s.n.ledger.holdDevices(s.c.Key, nil) // an earlier attempt may have had devices
		return
	}
	names, refusal := s.pickDevices(asked)
	s.c.CDIDevices, s.c.DevicesRefused = names, refusal
	s.n.ledger.holdDevices(s.c.Key, names)
	for _, key := range s.n.ledger.KeysWithDevices(s.c.Key.PodUID) { // an init container loses the devices that this container takes over
		if key != s.c.Key {
			left := slices.DeleteFunc(slices.Clone(s.n.ledger.Devices()[key]), func(name string) bool { return slices.Contains(names, name) })
			s.n.ledger.holdDevices(key, left)
		}
	}
}

// pickDevices chooses devices for all requests of a container. If it cannot serve one of the requests, it returns no
// devices, and refusal is the reason as a sentence.
func (s *placer) pickDevices(asked []intent.DeviceRequest) (names []string, refusal string) {
	giver, u, kept := s.n.policy.deviceGiver(), s.devices(), s.n.ledger.Devices()[s.c.Key]
	for _, r := range asked {
		if !giver.GivesKind(r.Kind) {
			return nil, "hooks.cdiDevices.classes does not list " + r.Kind
		}
		var chosen []string
		if len(r.Names) > 0 {
			chosen, refusal = s.chooseByName(u, r.Names)
		} else {
			chosen, refusal = s.chooseNearest(u, r, kept)
		}
		if refusal != "" {
			return nil, refusal
		}
		for _, name := range chosen {
			u.owners[name] = s.c.Key
		}
		names = append(names, chosen...)
	}
	slices.Sort(names)
	return names, ""
}

// chooseByName returns the given names if all devices with these names are free. Otherwise refusal says why one of them
// is not.
func (s *placer) chooseByName(u *nodeDevices, names []string) (chosen []string, refusal string) {
	for i, name := range names {
		d := u.byName[name]
		if d == nil {
			return nil, "the node's CDI specifications have no device " + name
		}
		if owner, taken := u.owner(d); taken {
			return nil, name + " belongs to " + s.n.ownerName(owner)
		}
		for _, other := range names[:i] {
			if eitherContainsOther(u.keysByName[name], u.keysByName[other]) {
				return nil, fmt.Sprintf("%s and %s are the same device", other, name)
			}
		}
	}
	return names, ""
}

// chooseNearest returns free devices of a kind. Devices that an earlier attempt of the container had (kept)
// come first, and then those nearest to the container's CPUs, on as few NUMA nodes as possible.
func (s *placer) chooseNearest(u *nodeDevices, r intent.DeviceRequest, kept []string) (chosen []string, refusal string) {
	var free []*lifecycle.NodeDevice
	all := u.singleDevices(r.Kind)
	for _, d := range all {
		if u.isFree(d) {
			free = append(free, d)
		}
	}
	switch {
	case len(all) == 0:
		return nil, "the node's CDI specifications have no devices of the kind " + r.Kind
	case len(free) < r.Number:
		return nil, fmt.Sprintf("the pod requests %d of the kind %s, but only %d of the node's %d are free", r.Number, r.Kind, len(free), len(all))
	}
	rank := s.deviceRanks(free, r.Number)
	slices.SortStableFunc(free, func(a, b *lifecycle.NodeDevice) int {
		had := func(d *lifecycle.NodeDevice) int {
			if slices.Contains(kept, d.Name) {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(had(a), had(b)), slices.Compare(rank[a.Name], rank[b.Name]), cmp.Compare(a.Name, b.Name))
	})
	for _, d := range free[:r.Number] {
		chosen = append(chosen, d.Name)
	}
	return chosen, ""
}

// deviceRanks returns the rank of each device, by name. The device with the lowest rank is the best. Devices rank by
// their distance to the container's CPUs, and then by how well the number of free devices on their NUMA node fits the
// requested number.
func (s *placer) deviceRanks(free []*lifecycle.NodeDevice, need int) map[string][]int {
	m, near := s.n.machine, s.nearNodes()
	count := make([]int, len(m.Nodes))
	at := make([]numahints.Mask, len(free))
	for i, d := range free {
		at[i] = nodesOfDevice(m, d)
		for _, node := range at[i].Indices() {
			count[node]++
		}
	}
	const unknown = 11 // for a device whose node is not known: more than the distance within a node (10), less than to another node
	ranks := make(map[string][]int, len(free))
	for i, d := range free {
		rank := []int{unknown, 0, 0}
		if at[i] != 0 {
			rank[0] = nodeDistance(m, at[i], near)
			node := at[i].Indices()[0]
			if rank[1] = count[node] - need; rank[1] < 0 { // the node has too few devices, so the node with the most comes first
				rank[1] = len(free) - rank[1]
			}
			rank[2] = node
		}
		ranks[d.Name] = rank
	}
	return ranks
}

// nodeDistance returns the smallest distance between a NUMA node of one set and a node of the other.
func nodeDistance(m *topology.Machine, from, to numahints.Mask) int {
	best := 1 << 10
	for _, i := range from.Indices() {
		for _, j := range to.Indices() {
			best = min(best, m.Distance(i, j))
		}
	}
	return best
}

// nearNodes returns the NUMA nodes that devices should be near: the nodes that the topology manager chose, or
// else the nodes of the container's CPUs.
func (s *placer) nearNodes() (at numahints.Mask) {
	ids := s.alignedNodes
	if a := s.c.decision.affinity; len(ids) == 0 && a != nil {
		ids = a.Nodes
	}
	for _, id := range ids {
		if i, ok := s.n.machine.NodeIndex(id); ok {
			at |= 1 << i
		}
	}
	if at != 0 {
		return at
	}
	cpus := s.c.Assignment.Owned
	if s.c.Assignment.Pool != placement.Exclusive {
		cpus, _ = s.n.layout(s.c).CPUs(s.c.Assignment.CPUGroup)
	}
	return nodesWithCPUs(s.n.machine, cpus)
}

// takenDevices returns those CDI devices that a container requests by annotation although another container has them
// exclusively. The keys of the map are names of devices. The values are names of the containers that have them.
func (n *view) takenDevices(p *Pod, c *Container) (taken map[string]string) {
	if !p.Intent.CDIDevices.IsSet() {
		return nil
	}
	asked := p.Intent.CDIDevices.V.Of(c.Name).V
	for key, names := range n.ledger.Devices() {
		for _, name := range names {
			if key != c.Key && slices.Contains(asked, name) {
				if taken == nil {
					taken = map[string]string{}
				}
				taken[name] = n.ownerName(key)
			}
		}
	}
	return taken
}
