package pools

import (
	"fmt"
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/choose"
)

// Share assigns a container to the pool of its class. If the pod requests NUMA nodes, the container gets a pool that is
// bound to one node, which Share chooses. If a scheduler chose the nodes, the pool is bound to all these nodes.
func (p *Policy) Share(v placement.View, s placement.Subject) placement.Assignment {
	in := s.Intent
	class := in.Class.V
	var trouble []lifecycle.Problem
	var why []choose.Reason
	binds := class == intent.Shared && len(placement.SharedNodes(v, in)) == 0 || class == intent.Reclaimed && len(in.Nodes.V) < 2
	if s.PodPoolNode.Set { // another container of the pod is bound to a node, so bind this container, too
		binds = binds || class == intent.Shared
	}
	if s.FirstPoolChoice && !s.PoolNode.Set && binds && in.NUMA.IsSet() && p.Sizing != nil {
		var err error
		if s.PoolNode, why, err = p.choosePoolNode(v, s); err != nil {
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

// choosePoolNode chooses the NUMA node for a container that shares CPUs of one node. All containers of a pod get
// the same node. The error is a sentence for users.
func (p *Policy) choosePoolNode(v placement.View, s placement.Subject) (node lifecycle.Opt[int], why []choose.Reason, err error) {
	if !s.CurrentCPUs.Empty() {
		for _, n := range v.Machine.Nodes {
			if n.CPUs.Contains(s.CurrentCPUs) && slices.Contains(p.allowedNodes(v, s), n.ID) {
				node = lifecycle.Some(n.ID)
			}
		}
		return node, nil, nil
	}
	if s.PodPoolNode.Set {
		return s.PodPoolNode, nil, nil
	}
	milli := intent.MilliFromShares(s.Requested.CPU.Shares.V)
	if s.PodRequested != nil {
		milli = max(milli, intent.MilliFromShares(s.PodRequested.CPU.Shares.V))
	}
	w := choose.NodeRequest{Memory: s.Memory.Bytes, FreeMemory: s.Memory.FreeByNode}
	w.Near, w.NearName = p.devices(v, s).near()
	for _, id := range p.allowedNodes(v, s) {
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

// roomOnNode returns left, the milli-CPUs of a NUMA node that remain for further requests: the CPUs of the node that
// shared pools can use, minus the requests in pools that are bound to the node. The result open is false if the pod's
// pool may not use the node.
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
