package conductor

import (
	"fmt"
	"slices"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/runtimesync"
)

// route turns a committed plan into the values of the answer and of the kernel writes.
func (n *node) route(w *work) {
	switch w.report.Event.Kind {
	case lifecycle.Synchronize:
		n.checkpoint.Prune(w.report.Event)
	case lifecycle.PostCreateContainer:
		n.rename(w)
	}
	n.noteDelegated(w.report.Event)
	n.noteFailedAfterAnswer(w)
	n.forgetEnded(w)
	for _, id := range w.report.Plan.ChangedPods {
		n.preparePod(w, id)
	}
	reported := map[string]*lifecycle.Container{}
	for _, ctr := range w.report.Event.Containers {
		if ctr != nil {
			reported[ctr.ID] = ctr
		}
	}
	for _, id := range n.sortLosersFirst(w.report.Plan.Changed) {
		n.routeChanged(w, n.state.Container(id), reported[id])
	}
	for _, change := range w.report.Plan.GroupChanges {
		n.prepareGroup(w, change)
	}
	n.updateOutdatedCreated(w)
	n.updateCopyInAnswer(w)
	if w.report.Plan.GrantsChanged() {
		n.checkpoint.SetGrants(cpuLists(n.state.CPUsByPod(), n.state.Machine), n.state.LendingPods())
	}
	if w.report.Plan.DevicesChanged() {
		n.checkpoint.SetDevices(n.state.HeldDevices())
	}
	if n.state.PoolsResized() {
		n.checkpoint.SetBalloons(cpuLists(n.state.Balloons(), n.state.Machine))
	}
}

// routeChanged routes the values of a container that was decided again. reported is the container as a Synchronize
// describes it; nil for other events.
func (n *node) routeChanged(w *work, ctr *engine.Container, reported *lifecycle.Container) {
	kind := w.report.Event.Kind
	if slices.Contains(w.report.Plan.ReassignedContainers, ctr.ID) || kind == lifecycle.UpdatePodSandbox || kind == lifecycle.UpdateContainer && ctr.ID != w.report.Event.Container.ID {
		n.prepareResizedWithPod(w, ctr)
		return
	}
	switch kind {
	case lifecycle.CreateContainer:
		n.prepareCreate(w, ctr)
	case lifecycle.PostUpdateContainer, lifecycle.PostStartContainer:
		// Between the agent's answer and the runtime's write, other containers possibly got CPUs of this container, and
		// the runtime then wrote an old list. So the keeper writes the last decision again.
		w.kernelWrites.ownerToReconcile = ctr.ID
		n.noteUpdateStored(ctr)
	case lifecycle.UpdateContainer:
		n.prepareUpdate(w, ctr)
	case lifecycle.StartContainer:
		n.prepareStart(w, ctr)
	case lifecycle.Synchronize, lifecycle.Configure:
		n.storeFirstPlacement(w, ctr)
		n.prepareExisting(w, ctr, reported)
	case lifecycle.PostCreateContainer:
		n.createDone(ctr)
		if w.report.Event.Former == "" {
			return
		}
		// The path of the container's cgroup is known now. If the container's pool changed while the runtime created
		// the container, the runtime's stored copy must be updated before the container starts.
		if _, err := n.target(ctr); err == nil {
			n.track(ctr.ID).noCgroupPath = false
		}
		n.routeValues(w, ctr, route.PhaseCreated, nil)
	case lifecycle.Inform:
		// Possibly the container was created without a record. A restarted agent needs a record, so
		// prepareResizedWithPod stores one.
		n.track(ctr.ID).Recorded = true
		n.prepareResizedWithPod(w, ctr)
	}
}

// forgetEnded forgets pods and containers that have ended.
func (n *node) forgetEnded(w *work) {
	for _, id := range slices.Concat(w.report.Plan.EndedContainers, w.report.Plan.EndedPods) {
		n.forget(w, id)
	}
	if p := w.report.Plan.Pod; p != nil && p.Stopped {
		n.forgetCreations(func(uid string) bool { return uid == p.Pod.UID })
	}
	if len(w.report.Plan.EndedPods) > 0 { // the event possibly ended other pods than its own
		n.forgetCreations(func(uid string) bool { return len(n.state.PodsOf(uid)) == 0 })
	}
}

// sortLosersFirst sorts live containers so that those that lose CPUs come before those that get
// CPUs.
func (n *node) sortLosersFirst(ids []string) []string {
	var shared, exclusive []string
	for _, id := range ids {
		switch ctr := n.state.Container(id); {
		case ctr == nil || !ctr.Alive():
		case ctr.Assignment.Pool == placement.Exclusive && !ctr.Assignment.OwnsAndShares():
			exclusive = append(exclusive, id)
		default:
			shared = append(shared, id)
		}
	}
	return append(shared, exclusive...)
}

// forget deletes what the conductor, the keeper and the checkpoint have about a pod or container that has ended.
func (n *node) forget(w *work, id string) {
	w.kernelWrites.ownersToForget = append(w.kernelWrites.ownersToForget, id)
	if t := n.tracks[id]; t != nil {
		n.queue.Remove(&t.Copy)
	}
	if w.report.Event.Kind != lifecycle.Synchronize { // a Synchronize prunes the checkpoint itself
		n.checkpoint.Drop(id)
	}
	if n.state.Container(id) == nil && n.state.Pod(id) == nil {
		delete(n.tracks, id)
	}
}

// target returns a container's cgroup as the target of the keeper's writes. It returns an error if the keeper cannot
// use the container's cgroup path.
func (n *node) target(ctr *engine.Container) (keeper.Target, error) {
	parent := ""
	if p := n.state.Pod(ctr.PodID); p != nil {
		parent = p.Pod.CgroupParent
	}
	t := n.track(ctr.ID)
	if at := t.cgroup; at.dir != "" && at.parent == parent && at.path == ctr.CgroupsPath {
		return keeper.Target{Owner: ctr.ID, Dir: at.dir}, nil
	}
	dir, err := cgroup.Path(parent, ctr.CgroupsPath)
	if err == nil {
		t.cgroup = cgroupPath{parent: parent, path: ctr.CgroupsPath, dir: dir}
	}
	return keeper.Target{Owner: ctr.ID, Dir: dir}, err
}

// preparePod adds the decided values of a pod's own cgroup to the keeper's writes.
func (n *node) preparePod(w *work, id string) {
	p := n.state.Pod(id)
	if p == nil || len(p.Values) == 0 {
		if t := n.tracks[id]; t != nil {
			t.results = nil
		}
		return
	}
	dir, err := cgroup.PodPath(p.Pod.CgroupParent)
	for _, v := range p.Values {
		if err != nil {
			n.track(id).noteUnapplied(v, api.BadCgroup, err.Error())
			continue
		}
		w.kernelWrites.itemsToWrite = append(w.kernelWrites.itemsToWrite, podItem(p, dir, v))
	}
	if v, ok := requestedWeight(p); ok && err == nil {
		w.kernelWrites.itemsToWrite = append(w.kernelWrites.itemsToWrite, podItem(p, dir, v))
	}
}

// maxFailedCreates is how many creations of one container must fail in a row before the agent stops setting fields at
// the creation of this container. It stops because every creation fails if two NRI plugins set the same field. Failures
// count only if other plugins answer CreateContainer, too. Without other plugins, the creation failed for another
// reason. Or it succeeded without the agent's values, because the agent was killed before the runtime got its answer.
const maxFailedCreates = 2

// prepareCreate puts values into the answer to a creation: those that the attachment can set and that no other plugin
// sets. The keeper writes the other values when the cgroup exists.
func (n *node) prepareCreate(w *work, ctr *engine.Container) {
	t := n.track(ctr.ID)
	t.CreateAnswered()
	failed := w.report.Plan.FailedCreates + n.endedCreates[ctr.Key]
	delete(n.endedCreates, ctr.Key)
	if !w.capabilities.OthersAnswer {
		failed = 0
	}
	if failed > 0 {
		n.failedCreates[ctr.Key] += failed
	}
	if _, err := n.target(ctr); err != nil {
		t.noCgroupPath = true
	}
	values := n.routeValues(w, ctr, route.PhaseCreating, nil)
	n.noteFailedCreations(w, ctr, values, failed)
	switch {
	case !w.capabilities.CarriesRecords():
		// The runtime reported the container after its creation, so the container has no annotation with a record.
		// The checkpoint stores the record instead. The runtime's copy has the reported values.
		n.storeRecord(ctr)
		t.SetReported(&w.report.Event.Container.Resources)
		n.enqueue(ctr, values...)
	case len(values) > 0 || len(ctr.SkippedInterfaces) > 0 || len(ctr.CDIDevices) > 0 || ctr.ProblemSummary.Refused || !ctr.Stamp.CPUs.Empty():
		// In each of these cases a restarted agent needs the container's record, even if the agent decided no value.
		w.answer.Values = append(w.answer.Values, n.recordAnnotation(ctr))
		t.Recorded = true
	}
}

// rename copies what the conductor knows about a container from the container's former id to its new id. The runtime
// assigns the new id when it has created the container.
func (n *node) rename(w *work) {
	from, to := n.tracks[w.report.Event.Former], w.report.Event.Container.ID
	if w.report.Plan.Container == nil || w.report.Plan.Container.ID != to || from == nil {
		return
	}
	t := n.track(to)
	if from.results != nil {
		t.results = slices.Clone(from.results)
	}
	t.InheritFrom(&from.Copy)
	if from.creationValues != nil {
		t.creationValues = from.creationValues
	}
}

// recordAnnotation returns the annotation with the signed record of a container. If the record is too long for an
// annotation, the annotation has a part of it, and the checkpoint stores the whole record.
func (n *node) recordAnnotation(ctr *engine.Container) lifecycle.Value {
	r := n.recordOf(ctr)
	text, whole := n.signer.Stamp(ctr.Key.PodUID, ctr.Name, r)
	if !whole {
		n.checkpoint.SetRecord(ctr.ID, r)
	}
	return lifecycle.Value{
		Field: lifecycle.Annotation, Key: RecordKey, Text: text,
		Why: lifecycle.Reason{Hook: "record"},
	}
}

// recordOf returns the current record of a container.
func (n *node) recordOf(ctr *engine.Container) lifecycle.Record {
	r := lifecycle.Record{
		Version: lifecycle.RecordVersion, Generation: n.state.Generation, CPUs: n.state.Machine.Format(ctr.Stamp.CPUs),
		CreatedWith: n.track(ctr.ID).creationValues, RecordFields: ctr.RecordFields,
	}
	if ctr.Balloon != "" {
		r.BalloonCPUs = n.state.Machine.Format(n.state.BalloonCPUs(ctr.Balloon))
	}
	return r
}

// storeRecord stores the current record of a container in the checkpoint. It stores nothing if the runtime has not
// reported the container's request.
func (n *node) storeRecord(ctr *engine.Container) {
	n.storeRecordWith(n.checkpoint.SetRecord, ctr)
}

// storeResizedRecord does what storeRecord does, for a container whose request has possibly changed since its creation.
func (n *node) storeResizedRecord(ctr *engine.Container) {
	n.storeRecordWith(n.checkpoint.SetResizedRecord, ctr)
}

// storeRecordWith calls set with the current record of a container, if the runtime has reported the container's
// request.
func (n *node) storeRecordWith(set func(id string, r lifecycle.Record), ctr *engine.Container) {
	if !ctr.Undescribed.NoRequest {
		set(ctr.ID, n.recordOf(ctr))
	}
}

// storeFirstPlacement stores the record of a container in the checkpoint if placement was disabled before this event,
// and the event has decided whether the container gets the CPUs that its pod requests. The container's annotation lacks
// this decision, because it was written at the container's creation.
func (n *node) storeFirstPlacement(w *work, ctr *engine.Container) {
	p := n.state.Pod(ctr.PodID)
	if w.placementDisabled[ctr.ID] && !ctr.NeverPlaced && p != nil && p.Intent.CPUs.IsSet() {
		n.storeRecord(ctr)
	}
}

// prepareStart handles the start of a container. If the attachment makes the runtime wait for the agent's answer before
// the start (HoldsStart), the container gets its cgroup only at the start. Then the keeper cannot write values before
// the container's first instruction. So the answer updates the runtime's copy with the values that were decided after
// the creation.
func (n *node) prepareStart(w *work, ctr *engine.Container) {
	t := n.track(ctr.ID)
	n.noteStarted(ctr, w.report.Event.Container)
	delete(n.failedCreates, ctr.Key)
	n.createDone(ctr)
	w.kernelWrites.ownerToReconcile = ctr.ID
	w.answer.OwnsCPUs = ctr.Assignment.Pool == placement.Exclusive
	switch {
	case t.undescribed && ctr.Undescribed.Why == "":
		t.undescribed, t.noCgroupPath = false, false
		n.prepareExisting(w, ctr, w.report.Event.Container)
	case t.noCgroupPath: // the container's cgroup is known only now
		t.noCgroupPath = false
		n.prepareExisting(w, ctr, nil)
	case t.results == nil:
		// The container was created while no agent ran, so it lacks the values that only a creation can set.
		// prepareExisting notes which values these are.
		n.prepareExisting(w, ctr, w.report.Event.Container)
	case w.capabilities.HoldsStart:
		n.routeValues(w, ctr, route.PhaseStarting, nil)
	}
}

// prepareUpdate adds the decided values to the answer to the kubelet's update of a container.
func (n *node) prepareUpdate(w *work, ctr *engine.Container) {
	t := n.track(ctr.ID)
	n.storeResizedRecord(ctr)
	t.Recorded = t.Recorded || w.capabilities.CarriesRecords()
	n.createDone(ctr)
	t.UpdateDone() // the last update counts as written, because some runtimes never report that they have written it
	t.Pending = runtimesync.RequestedTexts(w.report.Event.Requested)
	n.routeValues(w, ctr, route.PhaseUpdating, nil)
	if !w.capabilities.CarriesRecords() {
		n.noteUpdateStored(ctr) // the runtime reported the update after it had made it, and waits for no answer
	}
}

// prepareResizedWithPod applies the decision for a container whose values changed without an update of the container
// itself, for example with a resize of its pod. It stores a new record, because the container's annotation has an older
// one.
func (n *node) prepareResizedWithPod(w *work, ctr *engine.Container) {
	n.storeResizedRecord(ctr)
	n.prepareExisting(w, ctr, nil)
}

// createDone notes that the runtime has created a container. If updates were sent before, the runtime possibly ignored
// them, so createDone queues the values again.
func (n *node) createDone(ctr *engine.Container) {
	if n.track(ctr.ID).CreateDone() {
		n.enqueue(ctr, n.state.Values(ctr)...)
	}
}

// noteUpdateStored notes that the runtime has stored the values of an update. If the agent decided newer values since
// the update, the update overwrote them in the runtime's copy. So noteUpdateStored queues the newer values again.
func (n *node) noteUpdateStored(ctr *engine.Container) {
	wrote := n.track(ctr.ID).UpdateDone()
	for _, v := range n.state.Values(ctr) {
		if _, ok := wrote[v.Field]; ok {
			n.enqueue(ctr, v)
		}
	}
}

// prepareExisting applies the current decision to an existing container: to the kernel at once, to the runtime's copy
// later. reported is the container as the runtime describes it; nil if the agent knows the container already.
func (n *node) prepareExisting(w *work, ctr *engine.Container, reported *lifecycle.Container) {
	t := n.track(ctr.ID)
	t.undescribed = t.undescribed || ctr.Undescribed.Why != ""
	if reported != nil {
		t.SetReported(&reported.Resources)
	}
	if reported != nil && !w.capabilities.CarriesRecords() || ctr.Stamp.Stale {
		n.storeRecord(ctr)
	}
	n.routeValues(w, ctr, route.PhaseRunning, reported)
}

// prepareGroup gives the containers of a pool their new CPUs after the pool changed. The keeper writes the CPUs to the
// kernel before the answer. For containers that have not started, the answer updates the runtime's copy.
func (n *node) prepareGroup(w *work, change engine.GroupChange) {
	w.kernelWrites.itemsToWrite = slices.Grow(w.kernelWrites.itemsToWrite, len(change.Members))
	if q, now := n.state.DisplacedProblem(n.state.Container(change.Members[0])); now && !n.state.IsDisplaced(change.Group, change.Before) {
		q.Reason = fmt.Sprintf("%d containers: %s", len(change.Members), q.Reason)
		w.report.Problems = append(w.report.Problems, q)
	}
	for _, id := range change.Members {
		ctr := n.state.Container(id)
		v, ok := n.state.CPUSet(ctr)
		if !ok {
			continue
		}
		if change.UsesFallbackCPUs {
			w.report.Problems = append(w.report.Problems, lifecycle.Problem{
				Key: "cpuset.cpus", Value: ctr.Name, Reason: "other containers own every CPU that this container may use", Then: "the container gets other CPUs",
			})
		}
		target, err := n.target(ctr)
		if err != nil {
			n.track(id).noteUnapplied(v, api.BadCgroup, err.Error())
			continue
		}
		sent := n.updateCreated(w, ctr, v)
		w.kernelWrites.itemsToWrite = append(w.kernelWrites.itemsToWrite, n.keeperItem(target, ctr, v))
		if !sent {
			w.addRuntimeOnly(n, ctr, v)
			n.enqueue(ctr, v)
		}
	}
}

// updateCreated adds to the answer an update of the runtime's copy of a container that was created and not started.
// Without the update, the container would start on CPUs that it has lost. updateCreated reports whether it added the
// update: not every answer can hold one.
func (n *node) updateCreated(w *work, ctr *engine.Container, v lifecycle.Value) bool {
	if ctr.Life != lifecycle.StateCreated || !w.canUpdateOthers() || route.ChooseSink(route.PhaseLosingCPUs, &w.capabilities, v, route.Inputs{}).Sink != route.ToRuntime {
		return false
	}
	n.updateInAnswer(w, ctr, v, route.PhaseLosingCPUs)
	return true
}

// canUpdateOthers reports whether the answer to an event can update other containers. An attachment that can hold
// starts allows such updates in every answer. NRI has a field for them only in the answers to CreateContainer,
// UpdateContainer and StopContainer.
func (w *work) canUpdateOthers() bool {
	switch w.report.Event.Kind {
	case lifecycle.CreateContainer, lifecycle.UpdateContainer, lifecycle.StopContainer:
		return w.carrier != nil
	}
	return w.carrier != nil && w.capabilities.HoldsStart
}

// updateOutdatedCreated calls updateCreated for the created containers whose copy in the runtime is outdated. Such a
// copy possibly lists CPUs that other containers get with this event.
func (n *node) updateOutdatedCreated(w *work) {
	if !w.canUpdateOthers() || !w.report.Plan.GrantsChanged() {
		return
	}
	for _, c := range n.queue.Waiting {
		ctr := n.state.Container(c.ID)
		if ctr == nil || ctr.Life != lifecycle.StateCreated {
			continue
		}
		if v, ok := n.state.CPUSet(ctr); ok && c.Lacks(ctr, v) {
			n.updateCreated(w, ctr, v)
		}
	}
}
