// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Registers of the Intel 82574 that the driver and its model use. Sections are those of the "Intel 82574 GbE Controller Family
// Datasheet", revision 3.4. Must not know who reads and writes them.
//
// One struct for each register, under its name in the datasheet: `at` is the offset in BAR 0, the rest are its fields.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::nic::e1000e {

inline constexpr uint16_t vendor_intel = 0x8086;
inline constexpr uint16_t device_82574 = 0x10d3;   // 82574L and 82574IT (9.1.1.2, device id)
inline constexpr uint16_t device_82574a = 0x10f6;  // 82574LA
inline constexpr size_t register_bytes = 0x20000;  // BAR 0 (10.1.1.1)
inline constexpr uint32_t all_ones = 0xffffffff;   // what a read says when nobody is there

constexpr uint32_t bit(unsigned n) { return uint32_t{1} << n; }

// --- general, 10.2.2 ---

struct Ctrl {  // 10.2.2.1, device control
  static constexpr size_t at = 0x00000;
  static constexpr uint32_t full_duplex = bit(0);
  static constexpr uint32_t gio_master_disable = bit(2);  // begin no more requests on PCIe
  static constexpr uint32_t set_link_up = bit(6);         // the MAC may talk to the PHY
  static constexpr uint32_t force_speed = bit(11);
  static constexpr uint32_t force_duplex = bit(12);
  static constexpr uint32_t reset = bit(26);  // clears itself; everything but PCI configuration
  static constexpr uint32_t receive_flow_control = bit(27);
  static constexpr uint32_t transmit_flow_control = bit(28);
  static constexpr uint32_t vlan_mode = bit(30);  // tags are taken off
  static constexpr uint32_t phy_reset = bit(31);
};
struct Status {  // 10.2.2.2, device status
  static constexpr size_t at = 0x00008;
  static constexpr uint32_t full_duplex = bit(0);
  static constexpr uint32_t link_up = bit(1);
  static constexpr uint32_t speed_1000 = bit(7);
  static constexpr uint32_t gio_master_enable = bit(19);  // requests on PCIe may be outstanding
};
struct Eec {  // 10.2.2.3, NVM control
  static constexpr size_t at = 0x00010;
  static constexpr uint32_t auto_read_done = bit(9);
};
struct Eerd {  // 10.2.2.4, NVM read: a word of 16 bits
  static constexpr size_t at = 0x00014;
  static constexpr uint32_t start = bit(0);
  static constexpr uint32_t done = bit(1);
  static constexpr unsigned address_shift = 2;
  static constexpr unsigned data_shift = 16;
};
struct CtrlExt {  // 10.2.2.5, extended device control
  static constexpr size_t at = 0x00018;
  static constexpr uint32_t extended_auto_mask = bit(24);   // EIAME: a cause that was sent masks itself
  static constexpr uint32_t interrupt_auto_mask = bit(27);  // IAME: a read of ICR masks
  static constexpr uint32_t driver_loaded = bit(28);        // tells the firmware
};
struct Mdic {  // 10.2.2.7, access to the PHY
  static constexpr size_t at = 0x00020;
  static constexpr uint32_t data = 0xffff;
  static constexpr unsigned register_shift = 16;
  static constexpr uint32_t phy = uint32_t{1} << 21;  // the PHY's address is 1
  static constexpr uint32_t write = uint32_t{1} << 26;
  static constexpr uint32_t read = uint32_t{2} << 26;
  static constexpr uint32_t ready = bit(28);
  static constexpr uint32_t error = bit(30);
};
struct ExtcnfCtrl {  // 10.2.2.15: who may use the PHY, driver or firmware
  static constexpr size_t at = 0x00f00;
  static constexpr uint32_t mdio_software = bit(5);
};
struct PhyControl {  // IEEE 802.3 clause 22.2.4.1, register 0 behind MDIC
  static constexpr unsigned number = 0;
  static constexpr uint16_t restart_negotiation = 1 << 9;
  static constexpr uint16_t power_down = 1 << 11;
  static constexpr uint16_t negotiate = 1 << 12;
};
struct PhyStatus {  // clause 22.2.4.2
  static constexpr unsigned number = 1;
  static constexpr uint16_t link_up = 1 << 2;
  static constexpr uint16_t negotiated = 1 << 5;
};

// --- interrupts, 10.2.4 and 7.4 ---

struct
    Icr {  // 10.2.4.1, causes. With IMS 0 a read clears all of them. A 1 written clears one. IMS and IMC have the same fields
  static constexpr size_t at = 0x000c0;
  static constexpr uint32_t transmit_written_back = bit(0);
  static constexpr uint32_t link_change = bit(2);
  static constexpr uint32_t receive_overrun = bit(6);
  static constexpr uint32_t receive_timer = bit(7);     // frames came (MSI)
  static constexpr uint32_t receive_queue_0 = bit(20);  // frames came (MSI-X)
  static constexpr uint32_t other = bit(24);            // link_change, for one (MSI-X)
  static constexpr uint32_t asserted = bit(31);
};
struct Itr {  // 10.2.4.2, throttle: 0 is off
  static constexpr size_t at = 0x000c4;
};
struct Eitr {  // 10.2.4.3, the same for each MSI-X vector
  static constexpr size_t at = 0x000e8;
  static constexpr unsigned count = 5;
};
struct Ics {  // 10.2.4.4: sets causes
  static constexpr size_t at = 0x000c8;
};
struct Ims {  // 10.2.4.5: a 1 allows the cause to interrupt
  static constexpr size_t at = 0x000d0;
};
struct Imc {  // 10.2.4.6: a 1 masks it
  static constexpr size_t at = 0x000d8;
};
struct Eiac {  // 10.2.4.7: MSI-X causes that clear themselves
  static constexpr size_t at = 0x000dc;
};
struct Iam {  // 10.2.4.8
  static constexpr size_t at = 0x000e0;
};
struct Ivar {  // 10.2.4.9, the MSI-X vector of each cause: 3 bits and a valid bit for each of five
  static constexpr size_t at = 0x000e4;
  static constexpr uint32_t all_to_vector_0 = 0x00088888;
  static constexpr unsigned receive_queue_0_shift = 0;
  static constexpr unsigned other_shift = 16;
  static constexpr uint32_t vector = 0x7;
  static constexpr uint32_t valid = 0x8;
};

// --- receive, 10.2.5 and 7.1 ---

struct Rctl {  // 10.2.5.1, receive control
  static constexpr size_t at = 0x00100;
  static constexpr uint32_t enable = bit(1);
  static constexpr uint32_t unicast_promiscuous = bit(3);
  static constexpr uint32_t multicast_promiscuous = bit(4);
  static constexpr uint32_t long_packets = bit(5);  // more than 1522 bytes with the FCS
  static constexpr uint32_t accept_broadcast = bit(15);
  static constexpr uint32_t strip_fcs = bit(26);
  static constexpr unsigned flexible_buffer_shift =
      27;  // 4 bits: the size of a buffer in KiB; 0: 2 KiB, by BSIZE
  static constexpr uint32_t flexible_buffer = 0xf;
};
struct Rdbal {  // 10.2.5.5, where the ring is: 16-byte aligned
  static constexpr size_t at = 0x02800;
};
struct Rdbah {  // 10.2.5.6
  static constexpr size_t at = 0x02804;
};
struct Rdlen {  // 10.2.5.7: bytes, a multiple of 128
  static constexpr size_t at = 0x02808;
};
struct Rdh {  // 10.2.5.8: the descriptor that the device takes next
  static constexpr size_t at = 0x02810;
};
struct Rdt {  // 10.2.5.9: one beyond the last that it may take
  static constexpr size_t at = 0x02818;
};
struct Rdtr {  // 10.2.5.10, delay of the interrupt: 0 is none
  static constexpr size_t at = 0x02820;
};
struct Rxdctl {  // 10.2.5.11, when descriptors are fetched and written back
  static constexpr size_t at = 0x02828;
  static constexpr uint32_t write_back_each = uint32_t{1} << 16;  // WTHRESH 1
  static constexpr uint32_t in_descriptors = bit(24);  // GRAN: thresholds count these, not cache lines
};
struct Radv {  // 10.2.5.12, the other delay
  static constexpr size_t at = 0x0282c;
};
struct Rxcsum {  // 10.2.5.15
  static constexpr size_t at = 0x05000;
  static constexpr uint32_t ip = bit(8);
  static constexpr uint32_t tcp_udp = bit(9);
};
struct Rfctl {  // 10.2.5.16
  static constexpr size_t at = 0x05008;
  static constexpr uint32_t extended_descriptors = bit(15);
};
struct
    Mta {  // 10.2.5.17, multicast table: a bit for each value of 12 bits of the address (RCTL.MO 0: its bits 47 to 36)
  static constexpr size_t at = 0x05200;
  static constexpr unsigned words = 128;
};
struct Ral {  // 10.2.5.18, receive address, bytes 0 to 3; entry 0 is the station's own
  static constexpr size_t at = 0x05400;
  static constexpr unsigned count = 16;
  static constexpr size_t stride = 8;
};
struct Rah {  // 10.2.5.19, bytes 4 and 5
  static constexpr size_t at = 0x05404;
  static constexpr uint32_t valid = bit(31);
};
struct Mrqc {  // 10.2.5.21: 0 is one queue
  static constexpr size_t at = 0x05818;
};

// --- transmit, 10.2.6 and 7.2 ---

struct Tctl {  // 10.2.6.1, transmit control
  static constexpr size_t at = 0x00400;
  static constexpr uint32_t enable = bit(1);
  static constexpr uint32_t pad = bit(3);  // short frames to 64 bytes with the FCS
  static constexpr uint32_t collision_threshold = uint32_t{0x0f} << 4;  // these two matter to half duplex
  static constexpr uint32_t collision_distance = uint32_t{0x3f} << 12;
  static constexpr uint32_t multiple_requests = bit(28);
};
struct Tipg {  // 10.2.6.2, inter-packet gap
  static constexpr size_t at = 0x00410;
  static constexpr uint32_t recommended = 0x00602008;
};
struct Tdbal {  // 10.2.6.4
  static constexpr size_t at = 0x03800;
};
struct Tdbah {  // 10.2.6.5
  static constexpr size_t at = 0x03804;
};
struct Tdlen {  // 10.2.6.6
  static constexpr size_t at = 0x03808;
};
struct Tdh {  // 10.2.6.7
  static constexpr size_t at = 0x03810;
};
struct Tdt {  // 10.2.6.8
  static constexpr size_t at = 0x03818;
};
struct Txdctl {  // 10.2.6.11
  static constexpr size_t at = 0x03828;
  static constexpr uint32_t must_be_set = bit(22);
  static constexpr uint32_t in_descriptors =
      bit(24);  // with WTHRESH 0: what asks for its status (RS) is written back at once
};

// --- statistics, 10.2.7; a read clears ---

struct Mpc {  // missed packets: the device had no buffer
  static constexpr size_t at = 0x04010;
};

// What an 82574 can take. 14 bytes of header, 9000 of payload, 4 of a VLAN tag; the FCS comes on top.
inline constexpr size_t frame_bytes_largest = 9018;
// More than this, without the FCS, needs RCTL.LPE.
inline constexpr size_t frame_bytes_plain = 1518;
// TCTL.PSP pads frames that are longer than 16 bytes.
inline constexpr size_t frame_bytes_smallest = 17;

}  // namespace weft::nic::e1000e
