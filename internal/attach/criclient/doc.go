// Package criclient reads CRI runtimes for every attachment: the client, verbose
// statuses, lists, and the conversion of the CRI's messages to lifecycle types. It
// decides nothing, and stores no pods or containers.
package criclient
