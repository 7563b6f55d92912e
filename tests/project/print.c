/* A console for examples on an emulated MPS2 without a C library's: print() understands %s, %d, and %g of whole numbers. */
#include <stdarg.h>
#include <stdint.h>

#define UART ((volatile uint32_t *)0x40004000)

int main(void);
int print(const char *format, ...);
extern uint32_t stack_top[];

static void put(char c)
{
    UART[0] = (uint8_t)c;
}

static void number(int value)
{
    if (value < 0)
        put('-');
    if (value / 10)
        number(value < 0 ? -(value / 10) : value / 10);
    put((char)('0' + (value < 0 ? -(value % 10) : value % 10)));
}

int print(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    for (; *format; ++format) {
        if (*format != '%') {
            put(*format);
            continue;
        }
        if (*++format == 's')
            for (const char *text = va_arg(arguments, const char *); *text; ++text)
                put(*text);
        else
            number(*format == 'd' ? va_arg(arguments, int) : (int)va_arg(arguments, double));
    }
    va_end(arguments);
    return 0;
}

static void start(void)
{
    *(volatile uint32_t *)0xE000ED88 |= 0xF00000u; /* CPACR: the FPU is on */
    UART[2] = 1;                                   /* CTRL: the transmitter is on */
    UART[4] = 16;                                  /* BAUDDIV */
    __asm__ volatile("dsb\n\tisb");
    main();
    put(4);
    for (;;) {
    }
}

__attribute__((section(".vectors"), used)) static const void *const vectors[] = {stack_top, (const void *)start};
