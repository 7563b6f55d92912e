#ifndef MAIN_H
#define MAIN_H

#include "stm32f4xx_hal.h"

#endif
