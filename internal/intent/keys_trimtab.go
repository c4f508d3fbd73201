package intent

// trimtabKeys are the keys that Trimtab itself defines.
func trimtabKeys() []Key {
	return []Key{
		{Name: TrimtabUnsetQuota, Place: OnPod, Edit: EditLive, Kinds: []Kind{Quota}},
		{Name: TrimtabCoreType, Place: OnPod, Edit: EditFixed, Kinds: []Kind{CPUPreference}},
		{Name: TrimtabIsolated, Place: OnPod, Edit: EditFixed, Kinds: []Kind{CPUPreference}},
		{Name: TrimtabBlockIOClass, Place: OnPod, Edit: EditNext, Kinds: []Kind{BlockIO}},
		{Name: TrimtabRDTClass, Place: OnPod, Edit: EditNext, Kinds: []Kind{RDT}},
		{Name: TrimtabHugepages, Place: OnPod, Edit: EditLive, Kinds: []Kind{HugepageLimits}},
		{Name: TrimtabCPUEnv, Place: OnPod, Edit: EditNext, Kinds: []Kind{CPUEnvKind}},
		{Name: TrimtabCDIDevices, Place: OnPod, Edit: EditFixed, Kinds: []Kind{ExclusiveDevicesKind}},
		{Name: RecordKey, Place: OnPod, Handling: KeyUnsupported, Why: "the agent writes it into containers; on a pod it is refused as forged"},
	}
}
