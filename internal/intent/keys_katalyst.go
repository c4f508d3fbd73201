package intent

import "slices"

// katalystKeys are the keys of katalyst-api of 2026-08 and katalyst-core 0.5.
func katalystKeys() []Key {
	keys := []Key{
		{Name: KatalystQoSLevel, Location: PodAnnotation, Edit: EditLive, Kinds: []Kind{ClassSystem, ClassDedicated, ClassShared, ClassReclaimed}},
		{Name: KatalystBindResult, Location: PodAnnotation, Edit: EditFixed, Kinds: []Kind{NUMANodes}},
		{Name: KatalystNUMANumber, Location: PodAnnotation, Edit: EditFixed, Kinds: []Kind{NUMANodes}, Why: "also as a key of cpu_enhancement"},
		{Name: KatalystNUMAIDs, Location: PodAnnotation, Edit: EditFixed, Kinds: []Kind{NUMANodes}, Why: "also as a key of cpu_enhancement"},
		{Name: KatalystCPU, Location: PodAnnotation, Field: "cpuset_pool", Edit: EditFixed, Kinds: []Kind{NamedPool}},
		{Name: KatalystCPU, Location: PodAnnotation, Field: "numa_share", Edit: EditFixed, Kinds: []Kind{NUMAExclusive}},
		{Name: KatalystCPU, Location: PodAnnotation, Field: "align_by_socket", Edit: EditFixed, Kinds: []Kind{NUMANodes}},
		{Name: KatalystCPU, Location: PodAnnotation, Field: "distribute_evenly_across_numa", Edit: EditFixed, Kinds: []Kind{NUMANodes}},
		{Name: KatalystCPU, Location: PodAnnotation, Field: "full_pcpus_pairing", Edit: EditFixed, Kinds: []Kind{NUMANodes}},
		{Name: KatalystMemory, Location: PodAnnotation, Field: "numa_binding", Edit: EditFixed, Kinds: []Kind{NUMANodes}},
		{Name: KatalystMemory, Location: PodAnnotation, Field: "numa_exclusive", Edit: EditFixed, Kinds: []Kind{NUMAExclusive}},
	}
	for _, e := range unservedEnhancements() {
		keys = append(keys, Key{Name: e.object, Location: PodAnnotation, Field: e.key, Handling: KeyUnsupported, Why: e.reason})
	}
	const katalystPrefix = "katalyst.kubewharf.io/"
	for _, row := range []struct {
		location Location
		handling Handling
		why      string
		names    []string
	}{
		{PodAnnotation, KeyUnsupported, "the agent does not give such devices to containers", []string{katalystPrefix + "nic_selection_result", katalystPrefix + "gpu_selection_result", katalystPrefix + "sriov_vf_result"}},
		{PodAnnotation, KeyUnsupported, "this agent sets no net_cls class", []string{katalystPrefix + "net_class_id"}},
		{PodAnnotation, KeyUnsupported, "the CPU request of the pod determines the CPU weight", []string{katalystPrefix + "cpu_weight_demand_cores", katalystPrefix + "cpu_weight_burst_ratio"}},
		{PodAnnotation, KeyUnsupported, "the agent does not read resource packages", []string{katalystPrefix + "resource_pool", katalystPrefix + "resource_package"}},
		{PodAnnotation, KeyUnsupported, "the agent supports the in-place resize of Kubernetes instead", []string{
			"pod.kubernetes.io/resizeResources", "pod.kubernetes.io/resizePolicy", "pod.kubernetes.io/inplace-update-resizing", "pod.kubernetes.io/pod-aggregated-requests",
		}},
		{PodLabel, KeyIgnored, "Katalyst passes it on to its plugins", []string{katalystPrefix + "pod_role"}},
		{PodAnnotation, KeyIgnored, "Katalyst passes it on to its plugins", []string{katalystPrefix + "pod_type"}},
		{PodAnnotation, KeyIgnored, evictionReason, []string{katalystPrefix + "pod_soft_evict_notify", katalystPrefix + "pod_evict_score"}},
		{PodAnnotation, KeyIgnored, "a switch of Katalyst's own kubelet", []string{katalystPrefix + "skip_qrm_admit"}},
		{PodAnnotation, KeyIgnored, "placement and hooks do not use it; it only tells resource plugins which container is the main container", []string{"kubernetes.io/main-container-name"}},
		{PodAnnotation, KeyIgnored, "an option for the runtime, not for the agent", []string{"rdt.resources.beta.kubernetes.io/pod", "rdt.resources.beta.kubernetes.io/need-mon-groups"}},
		{QRMAnnotation, KeyIgnored, "part of the protocol between Katalyst's kubelet and its plugins", []string{
			katalystPrefix + "resource_identifier", katalystPrefix + "netns_name",
			"qrm.katalyst.kubewharf.io/quantity-from-qrm-declaration", "qrm.katalyst.kubewharf.io/resource-reallocation",
		}},
		{ResourceName, KeyIgnored, "Katalyst's batch pods get the reclaimed pool because of their QoS level; this key sets no quota or weight", []string{
			"resource.katalyst.kubewharf.io/reclaimed_millicpu", "resource.katalyst.kubewharf.io/reclaimed_memory",
		}},
		{ResourceName, KeyIgnored, devicePluginReason, []string{
			"resource.katalyst.kubewharf.io/net_bandwidth", "resource.katalyst.kubewharf.io/memory_bandwidth", "resource.katalyst.kubewharf.io/milligpu",
			"resource.katalyst.kubewharf.io/gpu_memory", "resource.katalyst.kubewharf.io/sriov_nic", "resource.katalyst.kubewharf.io/power",
		}},
	} {
		for _, name := range row.names {
			keys = append(keys, Key{Name: name, Location: row.location, Handling: row.handling, Why: row.why})
		}
	}
	return slices.Clip(keys)
}

// enhancement is an enhancement of Katalyst that the agent does not serve: a member of the JSON object in an
// annotation.
type enhancement struct {
	object string // the annotation
	key    string // the name of the member
	reason string // why the agent does not serve the enhancement
}

// unservedEnhancements lists the enhancements that the agent knows but does not serve.
func unservedEnhancements() []enhancement {
	return []enhancement{
		{KatalystMemory, "rss_overuse_threshold", "this agent evicts no pod because of its memory or CPU usage"},
		{KatalystMemory, "oom_priority", "it needs a kernel of Katalyst's own; koordinator.sh/oom-score-adj works on every kernel"},
		{KatalystCPU, "suppression_tolerance_rate", "this agent evicts no pod because of its memory or CPU usage"},
		{KatalystCPU, "cpu_burst_policy", "only volcano.sh/quota-burst-time sets CPU burst"},
		{KatalystCPU, "cpu_burst_percent", "only volcano.sh/quota-burst-time sets CPU burst"},
		{KatalystCPU, "cpu_burst_threshold", "Katalyst does not use it either"},
		{KatalystNetwork, "namespace_type", "this agent chooses no network card"},
		{KatalystNetwork, "topology_affinity_restricted", "this agent chooses no network card"},
	}
}

// unservedEnhancement returns the reason why the agent does not serve an enhancement; known is false for other keys.
func unservedEnhancement(key string) (why string, known bool) {
	for _, e := range unservedEnhancements() {
		if e.key == key {
			return e.reason, true
		}
	}
	return "", false
}
