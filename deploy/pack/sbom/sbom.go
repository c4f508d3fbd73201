// Package sbom makes the SBOM of a program as SPDX 2.3 in JSON. The Go toolchain records the linked modules in each
// program. The SBOM lists exactly these modules and the standard library.
package sbom

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/trimtab/trimtab/deploy/pack/program"
)

// noAssertion is the SPDX value of a property about which the document says nothing.
const noAssertion = "NOASSERTION"

// document is an SPDX 2.3 document. It and the types below have only the properties that ForProgram sets, with their
// names in the JSON schema of SPDX.
type document struct {
	SPDXVersion   string         `json:"spdxVersion"`
	DataLicense   string         `json:"dataLicense"`
	ID            string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      creation       `json:"creationInfo"`
	Packages      []sbomPackage  `json:"packages"`
	Relationships []relationship `json:"relationships"`
}

// creation says when and by which tool a document was made.
type creation struct {
	Created  string   `json:"created"`  // the time, as RFC 3339 writes it
	Creators []string `json:"creators"` // the tool, as "Tool: NAME"
}

// sbomPackage is a package of a document: the program, a module that is linked into it, or Go's standard library.
type sbomPackage struct {
	ID               string      `json:"SPDXID"`
	Name             string      `json:"name"`
	Version          string      `json:"versionInfo,omitempty"`
	Supplier         string      `json:"supplier"`
	DownloadLocation string      `json:"downloadLocation"`
	FilesAnalyzed    bool        `json:"filesAnalyzed"`
	LicenseConcluded string      `json:"licenseConcluded"`
	LicenseDeclared  string      `json:"licenseDeclared"`
	Copyright        string      `json:"copyrightText"`
	Purpose          string      `json:"primaryPackagePurpose,omitempty"`
	Checksums        []checksum  `json:"checksums,omitempty"`
	References       []reference `json:"externalRefs,omitempty"`
}

// checksum is the checksum of a package.
type checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

// reference identifies a package for other programs.
type reference struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

// relationship says how two elements of the SBOM are related: the document and a package, or two packages.
type relationship struct {
	Element string `json:"spdxElementId"`
	Type    string `json:"relationshipType"`   // "DESCRIBES" or "DEPENDS_ON"
	Related string `json:"relatedSpdxElement"` // the element that Element describes, or on which it depends
}

// ForProgram returns the SBOM of a program. It returns the same bytes for the same program.
func ForProgram(p program.Program) ([]byte, error) {
	data, err := os.ReadFile(p.Path)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	digest := hex.EncodeToString(sum[:])
	main := module(p.Info.Main.Path, p.Version, "APPLICATION")
	main.LicenseDeclared = "Apache-2.0"
	main.Checksums = []checksum{{"SHA256", digest}}
	d := document{
		SPDXVersion: "SPDX-2.3", DataLicense: "CC0-1.0", ID: "SPDXRef-DOCUMENT",
		Name: "trimtab-" + p.Version + "-linux-" + p.Arch,
		// SPDX requires a unique namespace for each document. The digest of the program makes it unique and
		// reproducible.
		Namespace:     "https://github.com/trimtab/trimtab/spdx/" + p.Arch + "/" + digest,
		Creation:      creation{p.Time.Format(time.RFC3339), []string{"Tool: trimtab-pack"}},
		Packages:      []sbomPackage{main},
		Relationships: []relationship{{"SPDXRef-DOCUMENT", "DESCRIBES", main.ID}},
	}
	add := func(o sbomPackage) {
		d.Packages = append(d.Packages, o)
		d.Relationships = append(d.Relationships, relationship{main.ID, "DEPENDS_ON", o.ID})
	}
	add(module("stdlib", strings.TrimPrefix(p.Info.GoVersion, "go"), "LIBRARY"))
	for _, m := range p.Info.Deps {
		m = linkedModule(m)
		add(module(m.Path, m.Version, "LIBRARY"))
	}
	text, err := json.MarshalIndent(d, "", "  ")
	return append(text, '\n'), err
}

// linkedModule returns the module that is linked: m, or the module with which go.mod replaces it.
func linkedModule(m *debug.Module) *debug.Module {
	for m.Replace != nil {
		m = m.Replace
	}
	return m
}

// invalidIDCharacters matches the characters that an SPDX identifier must not have.
var invalidIDCharacters = regexp.MustCompile(`[^A-Za-z0-9.-]`)

// module returns the SPDX package of a Go module.
func module(path, version, purpose string) sbomPackage {
	return sbomPackage{
		ID: "SPDXRef-" + invalidIDCharacters.ReplaceAllString(path, "-"), Name: path, Version: version, Supplier: noAssertion,
		DownloadLocation: noAssertion, LicenseConcluded: noAssertion, LicenseDeclared: noAssertion, Copyright: noAssertion,
		Purpose:    purpose,
		References: []reference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")}},
	}
}
