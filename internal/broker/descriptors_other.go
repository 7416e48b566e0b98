//go:build !unix

package broker

func processDescriptors() descriptors { return limitedTo(anyNumber) }
