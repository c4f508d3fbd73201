package pools

import (
	"fmt"
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/choose"
)

// Share assigns containers to the pools of their classes. A pod that is bound to NUMA nodes gets the pool of
// one of these nodes, or of all nodes that a scheduler chose.
func (p *Policy) Share(v placement.View, s placement.Subject) placement.Assignment {
	in := s.Intent
	class := in.Class.V
	var trouble []lifecycle.Problem
	var why []choose.Reason
	binds := class == intent.Shared && len(placement.SharedNodes(v, in)) == 0 || class == intent.Reclaimed && len(in.Nodes.V) < 2
	if s.PodPoolNode.Set { // all containers of a pod are on one node
		binds = binds || class == intent.Shared
	}
	if s.FirstPoolChoice && !s.PoolNode.Set && binds && in.NUMA.IsSet() && p.Sizing != nil {
		var err error
		if s.PoolNode, why, err = p.poolNode(v, s); err != nil {
			trouble = []lifecycle.Problem{{Key: in.NUMA.Key, Reason: err.Error(), Refused: true, Then: "the container is bound to no NUMA node"}}
		}
	}
	a := placement.ShareByClass(v, s)
	if len(why) > 0 {
		a.Why += ": " + formatReasons(why)
	}
	a.Problems = append(trouble, a.Problems...)
	return a
}

// poolNode chooses the NUMA node for a container that shares CPUs of one node. All containers of a pod get
// the same node. The error is a sentence for users.
func (p *Policy) poolNode(v placement.View, s placement.Subject) (node lifecycle.Opt[int], why []choose.Reason, err error) {
	if !s.CurrentCPUs.Empty() {
		for _, n := range v.Machine.Nodes {
			if n.CPUs.Contains(s.CurrentCPUs) && slices.Contains(p.nodes(v, s), n.ID) {
				node = lifecycle.Some(n.ID)
			}
		}
		return node, nil, nil
	}
	if s.PodPoolNode.Set {
		return s.PodPoolNode, nil, nil
	}
	milli := intent.SharesMilli(s.Requested.CPU.Shares.V)
	if s.PodRequested != nil {
		milli = max(milli, intent.SharesMilli(s.PodRequested.CPU.Shares.V))
	}
	w := choose.NodeRequest{Memory: s.Memory.Bytes, FreeMemory: s.Memory.FreeByNode}
	w.Near, w.NearName = p.devices(v, s).near()
	for _, id := range p.nodes(v, s) {
		if len(s.AllowedNodes) > 0 && !slices.Contains(s.AllowedNodes, id) {
			continue
		}
		if left, open := roomOnNode(v, s.Intent, id); open && left >= milli {
			w.Nodes = append(w.Nodes, choose.NodeRoom{Node: id, LeftMilli: left - milli})
		}
	}
	id, reason, ok := p.Tree.PickNode(w)
	if !ok {
		return node, nil, fmt.Errorf("no NUMA node has %d milli-CPUs left", milli)
	}
	return lifecycle.Some(id), []choose.Reason{reason}, nil
}

// roomOnNode returns how many milli-CPUs of a NUMA node are left besides the requests of its pools. open is
// false if the pod's pool may not use the node.
func roomOnNode(v placement.View, in *intent.Pod, id int) (left int64, open bool) {
	node, _ := v.Machine.Node(id)
	left = int64(node.CPUs.And(v.Pools.Shared).Minus(v.Layout.Demand.OwnedCPUs).Len()) * milliOfCPU
	open = left != 0
	for w, milli := range v.Layout.Demand.Needs.All() {
		if w.IsBoundTo(id) {
			left -= milli / int64(len(w.NodeIDs()))
			open = open && !w.ExclusiveNode && (!in.NUMA.V.ExcludeOthers || isSmallPool(w, milli))
		}
	}
	return left, open
}
