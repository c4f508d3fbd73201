package intent

// trimtabKeys are the keys of our own.
func trimtabKeys() []Key {
	return of("trimtab", []Key{
		{Name: TrimtabUnsetQuota, Place: OnPod, Edit: EditLive, Kinds: []Kind{Quota}},
		{Name: TrimtabCoreType, Place: OnPod, Edit: EditFixed, Kinds: []Kind{CPUPreference}},
		{Name: TrimtabIsolated, Place: OnPod, Edit: EditFixed, Kinds: []Kind{CPUPreference}},
		{Name: TrimtabBlockIOClass, Place: OnPod, Edit: EditNext, Kinds: []Kind{BlockIO}},
		{Name: TrimtabRDTClass, Place: OnPod, Edit: EditNext, Kinds: []Kind{RDT}},
		{Name: TrimtabHugepages, Place: OnPod, Edit: EditLive, Kinds: []Kind{HugepageLimits}},
		{Name: TrimtabCPUEnv, Place: OnPod, Edit: EditNext, Kinds: []Kind{CPUEnvKind}},
		{Name: RecordKey, Place: OnPod, Fate: KeyUnsupported, Why: "the agent stamps it into containers; on a pod it is refused as forged"},
	})
}

// rubikKeys are the keys of rubik 2.0 and its neighbours.
func rubikKeys() []Key {
	return of("rubik", []Key{
		{Name: RubikPreemptable, Place: AsEither, Edit: EditLive, Kinds: []Kind{Preemption, ClassReclaimed, ClassShared}, Why: "a class only while hooks.preemption is on"},
		{Name: RubikBurst, Place: OnPod, Edit: EditLive, Kinds: []Kind{BurstKind}},
		{Name: RubikBlkioLimit, Place: OnPod, Edit: EditLive, Kinds: []Kind{DiskLimits}},
		{Name: RubikCacheLimit, Place: OnPod, Edit: EditLive, Kinds: []Kind{CacheLimit}, Why: "levels are not moved by measuring: dynamic is low"},
		{Name: RubikQuotaTurbo, Place: OnPod, Fate: KeyUnsupported, Why: "no quota is raised by measuring"},
		{Name: RubikCPI, Place: OnPod, Fate: KeyUnsupported, Why: "no quota is cut by measuring"},
		{Name: "qos.kunpeng.huawei.com/group", Place: AsLabel, Fate: KeyUnsupported, Why: "groups of kunpeng-qos-controller are not read"},
		{Name: "qos.kunpeng.huawei.com/workload-class", Place: AsLabel, Fate: KeyUnsupported, Why: "groups of kunpeng-qos-controller are not read"},
		{Name: "kubectl.kubernetes.io/last-applied-configuration", Place: OnPod, Fate: KeyIgnored, Why: "rubik reads limits there; here the runtime and the pod's spec tell them"},
		{Name: "kubernetes.io/config.hash", Place: OnPod, Fate: KeyIgnored, Why: "the UID of a static pod; the runtime tells the cgroup itself"},
	})
}
