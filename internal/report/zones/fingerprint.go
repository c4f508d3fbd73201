package zones

import (
	"encoding/binary"
	"encoding/hex"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// Fingerprint returns a checksum of a node's pods (podfingerprint v0.2.2, version v001). The order of the pods does not
// matter. The scheduler plugin computes the checksum of the pods that it knows. If the two checksums are equal, the
// amounts of the zones include all these pods.
func Fingerprint(pods []Pod) string {
	sums := make([]uint64, len(pods))
	for i, p := range pods {
		d := xxhash.NewWithSeed(xxhash.Sum64String(p.Namespace))
		_, _ = d.WriteString(p.Name) // WriteString of a Digest returns no errors
		sums[i] = d.Sum64()
	}
	slices.Sort(sums)
	all := xxhash.New()
	for _, s := range sums {
		_, _ = all.Write(binary.LittleEndian.AppendUint64(nil, s))
	}
	return "pfp0v001" + hex.EncodeToString(all.Sum(nil))
}
