package intent

// trimtabKeys are the keys that Trimtab itself defines.
func trimtabKeys() []Key {
	return []Key{
		{Name: TrimtabUnsetQuota, Location: PodAnnotation, Edit: EditLive, Kinds: []Kind{Quota}},
		{Name: TrimtabCoreType, Location: PodAnnotation, Edit: EditFixed, Kinds: []Kind{CPUPreference}},
		{Name: TrimtabIsolated, Location: PodAnnotation, Edit: EditFixed, Kinds: []Kind{CPUPreference}},
		{Name: TrimtabBlockIOClass, Location: PodAnnotation, Edit: EditNext, Kinds: []Kind{BlockIO}},
		{Name: TrimtabRDTClass, Location: PodAnnotation, Edit: EditNext, Kinds: []Kind{RDT}},
		{Name: TrimtabHugepages, Location: PodAnnotation, Edit: EditLive, Kinds: []Kind{HugepageLimits}},
		{Name: TrimtabCPUEnv, Location: PodAnnotation, Edit: EditNext, Kinds: []Kind{CPUEnvKind}},
		{Name: TrimtabCDIDevices, Location: PodAnnotation, Edit: EditFixed, Kinds: []Kind{ExclusiveDevicesKind}},
		{Name: RecordKey, Location: PodAnnotation, Handling: KeyUnsupported, Why: "the agent writes it to containers; on a pod, the agent refuses it as forged"},
	}
}
